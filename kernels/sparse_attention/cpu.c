/* Attention of few queries over listed cache rows, two passes without gathering the rows. float32 inside.

   Sizes: N queries, H heads (a multiple of TILE after padding), C latent width, R rope width, L listed rows in all.
   Every output column is summed over the rows in their order, so the number of threads does not change a result. */

#include "../vectors.h"

/* One list of rows: latent [rows][C] and rope [rows][R] (or NULL), bfloat16 if half; slots int64 [N][K], -1 is no row. */
typedef struct {
    const void *latent, *rope;
    const int64_t *slots;
    int64_t K;
    int64_t half;
} Source;

INLINE const void *row_at(const void *base, int64_t row, int64_t width, const int half) {
    return (const char *)base + row * width * (half ? 2 : 4);
}

/* logits[TILE][stride]: queries h .. h + TILE against TILE rows. */
INLINE void score(const float *q, const float *q_rope, const Source *s, const int64_t *slot, int count, int64_t C, int64_t R, float scale,
                  float *logits, int64_t stride, const int half) {
    v16 acc[TILE][TILE];
    const void *row[TILE];
    for (int i = 0; i < TILE; i++) for (int j = 0; j < TILE; j++) acc[i][j] = spread(0.f);
    for (int j = 0; j < TILE; j++) row[j] = row_at(s->latent, j < count && slot[j] >= 0 ? slot[j] : 0, C, half);
    for (int64_t c = 0; c < C; c += 16) {
        v16 x[TILE];
        for (int j = 0; j < TILE; j++) x[j] = load_row(row[j], c, half);
        for (int i = 0; i < TILE; i++) {
            const v16 y = load(q + i * C + c);
            for (int j = 0; j < TILE; j++) acc[i][j] += y * x[j];
        }
    }
    if (s->rope) {
        for (int j = 0; j < TILE; j++) row[j] = row_at(s->rope, j < count && slot[j] >= 0 ? slot[j] : 0, R, half);
        for (int64_t c = 0; c < R; c += 16) {
            v16 x[TILE];
            for (int j = 0; j < TILE; j++) x[j] = load_row(row[j], c, half);
            for (int i = 0; i < TILE; i++) {
                const v16 y = load(q_rope + i * R + c);
                for (int j = 0; j < TILE; j++) acc[i][j] += y * x[j];
            }
        }
    }
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < count; j++) logits[i * stride + j] = slot[j] < 0 ? -INFINITY : total(acc[i][j]) * scale;
}

/* out[TILE][16 * TILE] += weights times one block of columns of the listed rows. */
INLINE void mix(const Source *s, const int64_t *slots, const float *weights, int64_t stride, int64_t column, int parts, int64_t C,
                v16 acc[TILE][TILE], const int half) {
    for (int64_t k = 0; k < s->K; k++) {
        if (slots[k] < 0) continue;
        const void *row = row_at(s->latent, slots[k], C, half);
        v16 x[TILE];
        for (int j = 0; j < parts; j++) x[j] = load_row(row, column + 16 * j, half);
        for (int i = 0; i < TILE; i++) {
            const v16 w = spread(weights[i * stride + k]);
            for (int j = 0; j < parts; j++) acc[i][j] += w * x[j];
        }
    }
}

/* q [N][H][C], q_rope [N][H][R]; sinks [H] or NULL; weights: scratch [N][H][L]; out [N][H][C]. */
void sparse_attention(const float *q, const float *q_rope, const Source *sources, int64_t S, float scale, const float *sinks, float *weights,
                      float *out, int64_t N, int64_t H, int64_t C, int64_t R, int threads) {
    int64_t L = 0;
    for (int64_t s = 0; s < S; s++) L += sources[s].K;
#pragma omp parallel num_threads(threads)
    {
        int64_t offset = 0;
        for (int64_t s = 0; s < S; s++) {
            const Source *source = sources + s;
            const int64_t blocks = (source->K + TILE - 1) / TILE;
#pragma omp for schedule(static)
            for (int64_t job = 0; job < N * blocks; job++) {
                const int64_t n = job / blocks, k = job % blocks * TILE;
                const int count = source->K - k < TILE ? (int)(source->K - k) : TILE;
                const int64_t *slot = source->slots + n * source->K + k;
                for (int64_t h = 0; h < H; h += TILE) {
                    float *logits = weights + (n * H + h) * L + offset + k;
                    const float *y = q + (n * H + h) * C, *z = q_rope ? q_rope + (n * H + h) * R : 0;
                    if (source->half) score(y, z, source, slot, count, C, R, scale, logits, L, 1);
                    else score(y, z, source, slot, count, C, R, scale, logits, L, 0);
                }
            }
            offset += source->K;
        }
#pragma omp for schedule(static)
        for (int64_t job = 0; job < N * H; job++) {
            float *w = weights + job * L, peak = -1e30f;
            for (int64_t k = 0; k < L; k++) peak = w[k] > peak ? w[k] : peak;
            if (sinks && sinks[job % H] > peak) peak = sinks[job % H];
            float sum = sinks ? expf(sinks[job % H] - peak) : 0.f;
            for (int64_t k = 0; k < L; k++) sum += w[k] = expf(w[k] - peak);
            const float share = sum > 0.f ? 1.f / sum : 0.f;
            for (int64_t k = 0; k < L; k++) w[k] *= share;
        }
        const int64_t columns = (C + 16 * TILE - 1) / (16 * TILE), heads = H / TILE;
#pragma omp for schedule(static)
        for (int64_t job = 0; job < N * columns * heads; job++) {
            const int64_t n = job / (columns * heads), c = job / heads % columns * 16 * TILE, h = job % heads * TILE;
            const int parts = C - c < 16 * TILE ? (int)((C - c) / 16) : TILE;
            v16 acc[TILE][TILE];
            for (int i = 0; i < TILE; i++) for (int j = 0; j < TILE; j++) acc[i][j] = spread(0.f);
            int64_t place = 0;
            for (int64_t s = 0; s < S; s++) {
                const int64_t *slots = sources[s].slots + n * sources[s].K;
                const float *w = weights + (n * H + h) * L + place;
#define MIX(PARTS, HALF) mix(sources + s, slots, w, L, c, PARTS, C, acc, HALF)
                if (sources[s].half) { if (parts == TILE) MIX(TILE, 1); else MIX(parts, 1); }
                else { if (parts == TILE) MIX(TILE, 0); else MIX(parts, 0); }
#undef MIX
                place += sources[s].K;
            }
            for (int i = 0; i < TILE; i++)
                for (int j = 0; j < parts; j++) store(out + (n * H + h + i) * C + c + 16 * j, acc[i][j]);
        }
    }
}
