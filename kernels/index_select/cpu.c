/* Index scores and exact top-k of few queries over paged keys. float32 inside.

   score(n, p) = sum_h weights[n][h] * relu(query[n][h] . key_p). Sizes: H heads (a multiple of 16 after padding),
   D key width, T entries of a query's sequence, P entries per page. */

#include "../pool.h"
#include "../vectors.h"
#include <omp.h>

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
    x = x != x ? -INFINITY : x + 0.f;
    memcpy(&bits, &x, 4);
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

enum { BINS = 2048 };

/* The digit of which `wanted` keys are not below, found from the largest; `wanted` is reduced by the keys above it. */
INLINE uint32_t digit_of(const int32_t *count, int64_t *wanted) {
    uint32_t bin = BINS - 1;
    while (count[bin] < *wanted) *wanted -= count[bin--];
    return bin;
}

/* The k best of T scores, ascending positions, equal scores from the lowest position; k < T. `left` is scratch of T entries.

   Digits of 11, 11 and 10 bits from the top; after the first, only keys that share it are looked at. No branch depends on a score. */
static void best(const float *score, int64_t T, int64_t k, int32_t *out, uint32_t *left) {
    int32_t count[2][BINS];
    memset(count, 0, sizeof count);
    for (int64_t t = 0; t < T; t++) count[t & 1][ordered(score[t]) >> 21]++; /* two tables, since neighbours are often alike */
    for (int i = 0; i < BINS; i++) count[0][i] += count[1][i];
    int64_t wanted = k, n = 0; /* wanted: how many of the keys that share the digits found so far belong to the result */
    uint32_t low = digit_of(count[0], &wanted) << 21;
    for (int64_t t = 0; t < T; t++) {
        const uint32_t key = ordered(score[t]);
        left[n] = key;
        n += key >> 21 == low >> 21;
    }
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++) count[0][left[i] >> 10 & 2047]++;
    low |= digit_of(count[0], &wanted) << 10;
    for (int64_t i = 0; i < n; i++) count[1][left[i] >> 10 == low >> 10 ? left[i] & 1023 : 1024]++;
    count[1][1024] = 0;
    low |= digit_of(count[1], &wanted);
    for (int64_t t = 0, found = 0; found < k; t++) {
        const uint32_t key = ordered(score[t]);
        const int equal = key == low && wanted > 0;
        out[found] = (int32_t)t;
        found += key > low || equal;
        wanted -= equal;
    }
}

/* The first `seen` of a row of scores: all of them if they are no more than K, -1 behind. */
INLINE void choose(const float *score, int64_t seen, int64_t K, int32_t *out, uint32_t *left) {
    if (seen > K) best(score, seen, K, out, left);
    else for (int64_t t = 0; t < K; t++) out[t] = t < seen ? (int32_t)t : -1;
}

/* out[N][K] of scores [N][T] among the first visible[n] columns. Rows are independent. left: scratch [threads][T]. */
void top_positions(const float *scores, const int64_t *visible, int32_t *out, uint32_t *left, int64_t N, int64_t T, int64_t K, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 16)
    for (int64_t n = 0; n < N; n++)
        choose(scores + n * T, visible[n] < T ? visible[n] : T, K, out + n * K, left + omp_get_thread_num() * T);
}

typedef struct {
    const float *query, *weight;
    const void *keys;
    const int64_t *pages;
    float *scores;
    int64_t T, H, D, P, blocks; /* blocks of KEYS keys in a part */
    int half;
} Scoring;

static void score_part(const void *task, int64_t part) {
    const Scoring *p = task;
    const int64_t end = (part + 1) * p->blocks * KEYS, D = p->D;
    for (int64_t first = part * p->blocks * KEYS; first < end && first < p->T; first += KEYS) {
        float wide[KEYS][MAX_WIDTH];
        const float *key[KEYS];
        for (int k = 0; k < KEYS; k++) {
            const int64_t t = first + k < p->T ? first + k : p->T - 1;
            const int64_t place = (p->pages[t / p->P] * p->P + t % p->P) * D;
            if (p->half) {
                for (int64_t d = 0; d < D; d += 16) store(wide[k] + d, load_row((const uint16_t *)p->keys + place, d, 1));
                key[k] = wide[k];
            } else {
                key[k] = (const float *)p->keys + place;
            }
        }
        score_keys(key, p->query, p->weight, (int)p->H, (int)D, p->scores + first);
    }
}

/* out[N][K] int32 = positions, -1 behind the last. queries transposed [N][D][H], weights [N][H]; keys [pages][P][D],
   bfloat16 if half; page_table [S][table_width]; scores: float scratch [max visible + KEYS]; left: scratch [max visible]. */
void index_select(const float *queries, const float *weights, const void *keys, int half, const int64_t *page_table, const int64_t *sequence,
                  const int64_t *visible, int32_t *out, int64_t N, int64_t H, int64_t D, int64_t P, int64_t table_width, int64_t K,
                  float *scores, uint32_t *left, int threads) {
    for (int64_t n = 0; n < N; n++) {
        const int64_t T = visible[n], blocks = (T + KEYS - 1) / KEYS, share = blocks / (threads * 8) + 1;
        if (T > K) {
            const int64_t *pages = page_table + sequence[n] * table_width;
            const Scoring task = {queries + n * D * H, weights + n * H, keys, pages, scores, T, H, D, P, share, half};
            pool_run(score_part, &task, (blocks + share - 1) / share, threads);
        }
        choose(scores, T, K, out + n * K, left);
    }
}
