/* Gates and mixes of independent hyper-connections, float32. Tokens are independent: threads do not change a result.

   Sizes: T tokens, n streams, H hidden, G gates. streams [T][n][H]. */

#include "../vectors.h"

INLINE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

/* gate[g] = sigmoid(scale[g] * (fn[g] . flat) / sqrt(mean(flat^2) + norm_eps) + base[g]), flat [n * H]. */
INLINE void gates_of(const float *flat, const float *fn, const float *scale, const float *base, int64_t G, int64_t width, float norm_eps,
                     float *gate) {
    const float factor = 1.f / sqrtf(sum_of_squares(flat, width) / width + norm_eps);
    for (int64_t g = 0; g < G; g++) gate[g] = sigmoid(scale[g] * (dot(fn + g * width, flat, width) * factor) + base[g]);
}

INLINE void weighted_sum(const float *flat, const float *weight, int64_t n, int64_t H, float *out) {
    for (int64_t h = 0; h < H; h++) out[h] = weight[0] * flat[h];
    for (int64_t i = 1; i < n; i++)
        for (int64_t h = 0; h < H; h++) out[h] += weight[i] * flat[i * H + h];
}

/* fn [2n][nH], scale and base [2n]; x [T][H] and post [T][n] are written; gate: scratch [T][2n]. */
void ihc_gates(const float *streams, const float *fn, const float *scale, const float *base, float *x, float *post, float *gate, int64_t T,
               int64_t n, int64_t H, float norm_eps, float eps, float magnitude, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < T; t++) {
        float *own = gate + t * 2 * n;
        gates_of(streams + t * n * H, fn, scale, base, 2 * n, n * H, norm_eps, own);
        for (int64_t i = 0; i < n; i++) {
            own[i] += eps;
            post[t * n + i] = own[n + i] * magnitude + eps;
        }
        weighted_sum(streams + t * n * H, own, n, H, x + t * H);
    }
}

/* out[t][i] = streams[t][i] + post[t][i] * output[t]. */
void ihc_update(const float *streams, const float *post, const float *output, float *out, int64_t T, int64_t n, int64_t H, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t job = 0; job < T * n; job++) {
        const float *from = streams + job * H, *y = output + job / n * H, p = post[job];
        float *to = out + job * H;
        for (int64_t h = 0; h < H; h++) to[h] = from[h] + p * y[h];
    }
}

/* fn [n][nH], scale and base [n]; x [T][H] is written; gate: scratch [T][n]. */
void collapse(const float *streams, const float *fn, const float *scale, const float *base, float *x, float *gate, int64_t T, int64_t n,
              int64_t H, float norm_eps, float eps, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < T; t++) {
        float *own = gate + t * n;
        gates_of(streams + t * n * H, fn, scale, base, n, n * H, norm_eps, own);
        for (int64_t i = 0; i < n; i++) own[i] += eps;
        weighted_sum(streams + t * n * H, own, n, H, x + t * H);
    }
}
