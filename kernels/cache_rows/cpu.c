/* Cache rows, float32 in: norm, rotation and storing of one row after the other. Rows are independent, so the number of
   threads does not change a result; packed rows are the packing of exactly what a float32 pool gets. */

#include "../vectors.h"

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest, ties to even. */
INLINE uint16_t bfloat16(float x) {
    const uint32_t bits = bits_of(x);
    return x != x ? 0x7FC0 : (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

/* Nearest, ties to even; NaN beyond 448. Below 2^-6, the smallest normal number, the sum with 2^14 does the rounding. */
INLINE uint8_t e4m3(float x) {
    const uint32_t bits = bits_of(x) & 0x7FFFFFFF;
    const uint32_t normal = (bits + 0x7FFFF + ((bits >> 20) & 1) - (120u << 23)) >> 20;
    const uint32_t small = bits_of(fabsf(x) + 16384.f) - bits_of(16384.f);
    const uint32_t code = bits < 121u << 23 ? small : bits <= bits_of(448.f) ? normal : 0x7F;
    return (bits_of(x) >> 24 & 0x80) | code;
}

/* Biased exponent of the smallest power of two that brings the largest of D magnitudes, at least 1e-4, down to 448. */
INLINE uint32_t exponent(const float *x, int64_t D) {
    uint32_t largest = bits_of(1e-4f);
    for (int64_t d = 0; d < D; d++) {
        const uint32_t bits = bits_of(x[d]) & 0x7FFFFFFF;
        largest = bits > largest ? bits : largest;
    }
    return ((largest + 0x1FFFFF) >> 23) - 8; /* one more from beyond 1.75 * 2^k, since 448 = 1.75 * 2^8 */
}

/* e4m3 of x / 2^(exponent - 127), by the inverse power, which is exact. */
INLINE void quantise(const float *x, int64_t D, uint32_t exponent, uint8_t *to) {
    const float inverse = float_of((254 - exponent) << 23);
    for (int64_t d = 0; d < D; d++) to[d] = e4m3(x[d] * inverse);
}

INLINE void halve(const float *x, int64_t D, uint8_t *to) {
    uint16_t *half = (uint16_t *)to;
    for (int64_t d = 0; d < D; d++) half[d] = bfloat16(x[d]);
}

INLINE void rms_norm(const float *x, const float *w, float *to, int64_t D, float eps) {
    const float factor = 1.f / sqrtf(sum_of_squares(x, D) / D + eps);
    for (int64_t d = 0; d < D; d++) to[d] = x[d] * factor * w[d];
}

INLINE void layer_norm(const float *x, const float *w, const float *b, float *to, int64_t D, float eps) {
    v16 acc = spread(0.f);
    float rest = 0.f;
    int64_t d = 0;
    for (; d + 16 <= D; d += 16) acc += load(x + d);
    for (; d < D; d++) rest += x[d];
    const float mean = (total(acc) + rest) / D;
    for (d = 0; d < D; d++) to[d] = x[d] - mean;
    const float factor = 1.f / sqrtf(sum_of_squares(to, D) / D + eps);
    for (d = 0; d < D; d++) to[d] = to[d] * factor * w[d] + b[d];
}

/* What a pool holds: numbers, packed rows (656 or 584 bytes), or packed index keys (a page's codes before its scales). */
enum { FLOAT32, BFLOAT16, ROWS, KEYS };

static void store_numbers(const float *y, int64_t D, uint8_t *pool, int64_t slot, int form) {
    if (form == FLOAT32) memcpy(pool + slot * D * 4, y, D * 4);
    else halve(y, D, pool + slot * D * 2);
}

static void store_latent(const float *y, uint8_t *row) {
    uint32_t scales[4];
    for (int g = 0; g < 4; g++) {
        const uint32_t e = exponent(y + g * 128, 128);
        quantise(y + g * 128, 128, e, row + g * 128);
        scales[g] = e << 23;
    }
    memcpy(row + 512, scales, sizeof scales);
    halve(y + 512, 64, row + 528);
}

static void store_entry(const float *y, uint8_t *row) {
    for (int g = 0; g < 7; g++) {
        const uint32_t e = exponent(y + g * 64, 64);
        quantise(y + g * 64, 64, e, row + g * 64);
        row[576 + g] = e;
    }
    halve(y + 448, 64, row + 448);
    row[583] = 0;
}

static void store_key(const float *y, int64_t D, uint8_t *pool, int64_t page, int64_t slot) {
    uint8_t *at = pool + slot / page * page * (D + 4);
    const uint32_t e = exponent(y, D), scale = e << 23;
    quantise(y, D, e, at + slot % page * D);
    memcpy(at + page * D + slot % page * 4, &scale, sizeof scale);
}

/* x [N] rows `stride` apart, C channels to norm with w [C], then R to rotate; rope_pool NULL: packed rows of 656 bytes. */
void write_latents(uint8_t *latent_pool, int latent_form, uint8_t *rope_pool, int rope_form, const int64_t *slots,
                   const float *x, int64_t stride, const float *w, float eps, const float *rotation, int interleaved,
                   int64_t N, int64_t C, int64_t R, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        if (slots[n] < 0) continue;
        float y[C + R];
        rms_norm(x + n * stride, w, y, C, eps);
        turn(x + n * stride + C, rotation + n * R, y + C, R, 1.f, interleaved);
        if (rope_pool) {
            store_numbers(y, C, latent_pool, slots[n], latent_form);
            store_numbers(y + C, R, rope_pool, slots[n], rope_form);
        } else store_latent(y, latent_pool + slots[n] * 656);
    }
}

/* x [N] rows of D channels, `stride` apart; b NULL: RMS norm; R channels from `first` on rotated; page: keys in one page. */
void write_rows(uint8_t *pool, int form, int64_t page, const int64_t *slots, const float *x, int64_t stride,
                const float *w, const float *b, float eps, const float *rotation, int64_t first, int interleaved, int64_t N,
                int64_t D, int64_t R, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        if (slots[n] < 0) continue;
        float y[D];
        if (b) layer_norm(x + n * stride, w, b, y, D, eps);
        else rms_norm(x + n * stride, w, y, D, eps);
        turn(y + first, rotation + n * R, y + first, R, 1.f, interleaved);
        if (form == ROWS) store_entry(y, pool + slots[n] * 584);
        else if (form == KEYS) store_key(y, D, pool, page, slots[n]);
        else store_numbers(y, D, pool, slots[n], form);
    }
}
