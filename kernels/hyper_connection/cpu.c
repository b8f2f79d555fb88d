/* Hyper-connections, float32: from one block's output to the next block's input, token by token.
   Tokens are independent: neither threads nor neighbours change a result.

   Sizes: T tokens, n streams, H hidden, G gates, M columns of a mix (n, or n + n n with a matrix that mixes streams). */

#include "../vectors.h"

INLINE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

/* to[j] = post[j] * y + from[j], or post[j] * y + sum_i comb[i][j] * from[i]; mix: post, then comb. */
INLINE void update(const float *restrict from, const float *restrict mix, const float *restrict y, float *restrict to, const int64_t n,
                   int64_t H, int64_t M) {
    if (M == n) {
        for (int64_t j = 0; j < n; j++)
            for (int64_t h = 0; h < H; h++) to[j * H + h] = from[j * H + h] + mix[j] * y[h];
        return;
    }
    for (int64_t h = 0; h < H; h++)
        for (int64_t j = 0; j < n; j++) {
            float sum = mix[j] * y[h];
            for (int64_t i = 0; i < n; i++) sum += mix[n + i * n + j] * from[i * H + h];
            to[j * H + h] = sum;
        }
}

/* out[r] = rows[r] . x, four rows for one reading of x. */
INLINE void products(const float *rows, const float *x, int64_t R, int64_t D, float *out) {
    int64_t r = 0;
    for (; r + 4 <= R; r += 4) {
        const float *row = rows + r * D;
        v16 acc[4] = {spread(0.f), spread(0.f), spread(0.f), spread(0.f)};
        float rest[4] = {0.f, 0.f, 0.f, 0.f};
        int64_t d = 0;
        for (; d + 16 <= D; d += 16)
            for (int i = 0; i < 4; i++) acc[i] += load(row + i * D + d) * load(x + d);
        for (; d < D; d++)
            for (int i = 0; i < 4; i++) rest[i] += row[i * D + d] * x[d];
        for (int i = 0; i < 4; i++) out[r + i] = total(acc[i]) + rest[i];
    }
    for (; r < R; r++) out[r] = dot(rows + r * D, x, D);
}

/* comb [n][n] in place: softmax of the rows, then columns and rows in turn divided by their sums. */
INLINE void sinkhorn(float *comb, int64_t n, float eps, int64_t iterations) {
    for (int64_t i = 0; i < n; i++) {
        float *row = comb + i * n, top = row[0], sum = 0.f;
        for (int64_t j = 1; j < n; j++) top = row[j] > top ? row[j] : top;
        for (int64_t j = 0; j < n; j++) sum += row[j] = expf(row[j] - top);
        for (int64_t j = 0; j < n; j++) row[j] = row[j] / sum + eps;
    }
    for (int64_t step = 0; step < 2 * iterations - 1; step++) {
        const int64_t along = step % 2 ? 1 : n, across = step % 2 ? n : 1;
        for (int64_t a = 0; a < n; a++) {
            float sum = eps;
            for (int64_t b = 0; b < n; b++) sum += comb[a * across + b * along];
            for (int64_t b = 0; b < n; b++) comb[a * across + b * along] /= sum;
        }
    }
}

/* x = weight * rms(sum_i pre[i] * flat[i]). */
INLINE void normed_sum(const float *restrict flat, const float *restrict pre, const float *weight, float *restrict x, const int64_t n,
                       int64_t H, float norm_eps) {
    for (int64_t h = 0; h < H; h++) {
        float sum = pre[0] * flat[h];
        for (int64_t i = 1; i < n; i++) sum += pre[i] * flat[i * H + h];
        x[h] = sum;
    }
    const float factor = 1.f / sqrtf(sum_of_squares(x, H) / H + norm_eps);
    for (int64_t h = 0; h < H; h++) x[h] = x[h] * factor * weight[h];
}

typedef struct {
    const float *fn, *scale, *base, *weight; /* [G][n H], [G], [G], [H] */
    int64_t n, H, G, M;
    float norm_eps, eps, magnitude, post_eps; /* post = magnitude * sigmoid + post_eps */
    int64_t iterations;                       /* of Sinkhorn */
} site;

/* flat [n][H]: the streams; settled: where they go with y added (M > 0); post: the next mix, unless G = n. */
INLINE void enter_one(const site *s, const int64_t n, const float *flat, const float *mix, const float *y, float *settled, float *post,
                      float *x) {
    const int64_t H = s->H, width = n * H;
    if (s->M) {
        update(flat, mix, y, settled, n, H, s->M);
        flat = settled;
    }
    float gate[s->G];
    const float factor = 1.f / sqrtf(sum_of_squares(flat, width) / width + s->norm_eps);
    products(s->fn, flat, s->G, width, gate);
    for (int64_t g = 0; g < s->G; g++) gate[g] = s->scale[g] * (gate[g] * factor) + s->base[g];
    for (int64_t i = 0; i < n; i++) gate[i] = sigmoid(gate[i]) + s->eps;
    if (s->G > n)
        for (int64_t i = 0; i < n; i++) post[i] = sigmoid(gate[n + i]) * s->magnitude + s->post_eps;
    if (s->G > 2 * n) {
        memcpy(post + n, gate + 2 * n, n * n * sizeof(float));
        sinkhorn(post + n, n, s->eps, s->iterations);
    }
    normed_sum(flat, gate, s->weight, x, n, H, s->norm_eps);
}

/* streams [T][n][H]; mix [T][M] and output [T][H] are read where M > 0, and settled [T][n][H] is written.
   G = n: no next mix; 2n: next [T][n] is written; n (n + 2): next [T][n + n n]. x [T][H] is written. */
void enter(const float *streams, const float *mix, const float *output, const float *fn, const float *scale, const float *base,
           const float *weight, float *settled, float *next, float *x, int64_t T, int64_t n, int64_t H, int64_t G, int64_t M, float norm_eps,
           float eps, float magnitude, float post_eps, int64_t iterations, int threads) {
    const site s = {fn, scale, base, weight, n, H, G, M, norm_eps, eps, magnitude, post_eps, iterations};
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < T; t++) {
        const float *flat = streams + t * n * H, *own = mix + t * M, *y = output + t * H;
        float *to = settled + t * n * H, *post = next + t * (G - n), *out = x + t * H;
        if (n == 4) enter_one(&s, 4, flat, own, y, to, post, out);
        else enter_one(&s, n, flat, own, y, to, post, out);
    }
}
