/* Attention of few queries over listed cache rows, two passes without gathering the rows. float32 inside.

   Sizes: N queries, H heads (a multiple of TILE after padding), C latent width, R rope width, L listed rows in all.
   Every output column is summed over the rows in their order, so the number of threads does not change a result. */

#include "../pool.h"
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

typedef struct {
    const float *q, *q_rope, *sinks;
    const Source *sources, *source; /* all, and the one that is scored */
    float *weights, *out;
    int64_t S, N, H, C, R, L, offset, blocks;
    float scale;
} Attention;

/* Up to four tiles of rows of one query and source: logits of all heads. */
enum { TILES = 4 };

static void score_part(const void *task, int64_t part) {
    const Attention *p = task;
    const Source *s = p->source;
    const int64_t n = part / p->blocks, first = part % p->blocks * TILES * TILE, H = p->H, C = p->C, R = p->R;
    for (int64_t k = first; k < first + TILES * TILE && k < s->K; k += TILE) {
        const int count = s->K - k < TILE ? (int)(s->K - k) : TILE;
        const int64_t *slot = s->slots + n * s->K + k;
        for (int64_t h = 0; h < H; h += TILE) {
            float *logits = p->weights + (n * H + h) * p->L + p->offset + k;
            const float *y = p->q + (n * H + h) * C, *z = p->q_rope ? p->q_rope + (n * H + h) * R : 0;
            if (s->half) score(y, z, s, slot, count, C, R, p->scale, logits, p->L, 1);
            else score(y, z, s, slot, count, C, R, p->scale, logits, p->L, 0);
        }
    }
}

/* Logits of one query and head to weights. */
INLINE void soften(float *w, int64_t L, const float *sink) {
    float peak = -1e30f;
    for (int64_t k = 0; k < L; k++) peak = w[k] > peak ? w[k] : peak;
    if (sink && *sink > peak) peak = *sink;
    float sum = sink ? expf(*sink - peak) : 0.f;
    for (int64_t k = 0; k < L; k++) sum += w[k] = expf(w[k] - peak);
    const float share = sum > 0.f ? 1.f / sum : 0.f;
    for (int64_t k = 0; k < L; k++) w[k] *= share;
}

/* One query and TILE heads: weights, then the output. */
static void mix_part(const void *task, int64_t part) {
    const Attention *p = task;
    const int64_t H = p->H, C = p->C, L = p->L, n = part / (H / TILE), h = part % (H / TILE) * TILE;
    for (int i = 0; i < TILE; i++) soften(p->weights + (n * H + h + i) * L, L, p->sinks ? p->sinks + h + i : 0);
    for (int64_t c = 0; c < C; c += 16 * TILE) {
        const int parts = C - c < 16 * TILE ? (int)((C - c) / 16) : TILE;
        v16 acc[TILE][TILE];
        for (int i = 0; i < TILE; i++) for (int j = 0; j < TILE; j++) acc[i][j] = spread(0.f);
        int64_t place = 0;
        for (int64_t s = 0; s < p->S; s++) {
            const int64_t *slots = p->sources[s].slots + n * p->sources[s].K;
            const float *w = p->weights + (n * H + h) * L + place;
#define MIX(PARTS, HALF) mix(p->sources + s, slots, w, L, c, PARTS, C, acc, HALF)
            if (p->sources[s].half) { if (parts == TILE) MIX(TILE, 1); else MIX(parts, 1); }
            else { if (parts == TILE) MIX(TILE, 0); else MIX(parts, 0); }
#undef MIX
            place += p->sources[s].K;
        }
        for (int i = 0; i < TILE; i++)
            for (int j = 0; j < parts; j++) store(p->out + (n * H + h + i) * C + c + 16 * j, acc[i][j]);
    }
}

/* q [N][H][C], q_rope [N][H][R]; sinks [H] or NULL; weights: scratch [N][H][L]; out [N][H][C]. */
void sparse_attention(const float *q, const float *q_rope, const Source *sources, int64_t S, float scale, const float *sinks, float *weights,
                      float *out, int64_t N, int64_t H, int64_t C, int64_t R, int threads) {
    Attention task = {q, q_rope, sinks, sources, sources, weights, out, S, N, H, C, R, 0, 0, 0, scale};
    for (int64_t s = 0; s < S; s++) task.L += sources[s].K;
    for (int64_t s = 0; s < S; s++) {
        task.source = sources + s;
        task.blocks = (sources[s].K + TILES * TILE - 1) / (TILES * TILE);
        pool_run(score_part, &task, N * task.blocks, threads);
        task.offset += sources[s].K;
    }
    pool_run(mix_part, &task, N * H / TILE, threads);
}
