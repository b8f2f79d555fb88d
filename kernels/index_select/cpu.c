/* Index scores and exact top-k of few queries over paged keys. float32 inside.

   score(n, p) = sum_h weights[n][h] * relu(query[n][h] . key_p). Sizes: H heads (a multiple of 16 after padding),
   D key width, T entries of a query's sequence, P entries per page. */

#include "../vectors.h"
#include <stdlib.h>

enum { KEYS = TILE, MAX_WIDTH = 256, MAX_HEADS = 128 };

/* Scores of keys first .. first + KEYS; queries transposed [D][H]. */
INLINE void score_keys(const float *const *key, const float *query, const float *weight, int H, int D, float *out) {
    v16 sum[KEYS];
    for (int k = 0; k < KEYS; k++) sum[k] = spread(0.f);
    for (int h = 0; h < H; h += 16 * TILE) {
        const int parts = H - h < 16 * TILE ? (H - h) / 16 : TILE;
        if (parts == TILE) {
            v16 acc[KEYS][TILE];
            for (int k = 0; k < KEYS; k++) for (int j = 0; j < TILE; j++) acc[k][j] = spread(0.f);
            for (int d = 0; d < D; d++) {
                v16 q[TILE];
                for (int j = 0; j < TILE; j++) q[j] = load(query + (int64_t)d * H + h + 16 * j);
                for (int k = 0; k < KEYS; k++) {
                    const v16 x = spread(key[k][d]);
                    for (int j = 0; j < TILE; j++) acc[k][j] += x * q[j];
                }
            }
            for (int k = 0; k < KEYS; k++)
                for (int j = 0; j < TILE; j++) sum[k] += positive(acc[k][j]) * load(weight + h + 16 * j);
        } else {
            for (int j = 0; j < parts; j++) {
                v16 acc[KEYS];
                for (int k = 0; k < KEYS; k++) acc[k] = spread(0.f);
                for (int d = 0; d < D; d++) {
                    const v16 q = load(query + (int64_t)d * H + h + 16 * j);
                    for (int k = 0; k < KEYS; k++) acc[k] += spread(key[k][d]) * q;
                }
                for (int k = 0; k < KEYS; k++) sum[k] += positive(acc[k]) * load(weight + h + 16 * j);
            }
        }
    }
    for (int k = 0; k < KEYS; k++) out[k] = total(sum[k]);
}

/* Order-preserving bits: larger score, larger key; -0 equals +0, NaN equals -inf. */
INLINE uint32_t ordered(float x) {
    uint32_t bits;
    if (x != x) x = -INFINITY;
    if (x == 0.f) x = 0.f;
    memcpy(&bits, &x, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The k best of T scores, ascending positions, equal scores from the lowest position; k < T. */
static void best(const float *score, int64_t T, int64_t k, int32_t *out) {
    uint32_t low = 0;
    int64_t wanted = k; /* how many of the keys that share the digits found so far belong to the result */
    static const int SHIFT[3] = {21, 10, 0}, BITS[3] = {11, 11, 10};
    for (int round = 0; round < 3; round++) {
        int32_t count[2048] = {0};
        const int above = SHIFT[round] + BITS[round];
        const uint32_t prefix = round ? low >> above : 0;
        for (int64_t t = 0; t < T; t++) {
            const uint32_t key = ordered(score[t]);
            if (!round || key >> above == prefix) count[key >> SHIFT[round] & ((1u << BITS[round]) - 1)]++;
        }
        int bin = (1 << BITS[round]) - 1;
        while (count[bin] < wanted) wanted -= count[bin--];
        low |= (uint32_t)bin << SHIFT[round];
    }
    for (int64_t t = 0, n = 0; t < T && n < k; t++) {
        const uint32_t key = ordered(score[t]);
        if (key > low) out[n++] = (int32_t)t;
        else if (key == low && wanted > 0) { out[n++] = (int32_t)t; wanted--; }
    }
}

/* out[N][K] int32 = positions, -1 behind the last. queries transposed [N][D][H], weights [N][H]; keys [pages][P][D],
   bfloat16 if half; page_table [S][table_width]; scores: float scratch [max visible + KEYS]. */
void index_select(const float *queries, const float *weights, const void *keys, int half, const int64_t *page_table, const int64_t *sequence,
                  const int64_t *visible, int32_t *out, int64_t N, int64_t H, int64_t D, int64_t P, int64_t table_width, int64_t K,
                  float *scores, int threads) {
    for (int64_t n = 0; n < N; n++) {
        const int64_t T = visible[n];
        int32_t *row = out + n * K;
        if (T <= K) {
            for (int64_t t = 0; t < K; t++) row[t] = t < T ? (int32_t)t : -1;
            continue;
        }
        const int64_t *pages = page_table + sequence[n] * table_width;
        const int64_t blocks = (T + KEYS - 1) / KEYS;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            float wide[KEYS][MAX_WIDTH];
            const float *key[KEYS];
            for (int k = 0; k < KEYS; k++) {
                const int64_t t = b * KEYS + k < T ? b * KEYS + k : T - 1;
                const int64_t place = (pages[t / P] * P + t % P) * D;
                if (half) {
                    for (int64_t d = 0; d < D; d += 16) store(wide[k] + d, load_row((const uint16_t *)keys + place, d, 1));
                    key[k] = wide[k];
                } else {
                    key[k] = (const float *)keys + place;
                }
            }
            score_keys(key, queries + n * D * H, weights + n * H, (int)H, (int)D, scores + b * KEYS);
        }
        best(scores, T, K, row);
    }
}
