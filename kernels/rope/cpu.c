/* Rotation of neighbouring channel pairs, float32. */

#include "../vectors.h"

/* out[n][h] = x[n][h] turned by rotation[n]; x has strides per token and head, out [N][H][D]; rotation (cos, sin) [N][D/2]. */
void rotate_interleaved(const float *x, const float *rotation, float *out, int64_t N, int64_t H, int64_t D, int64_t token_stride,
                        int64_t head_stride, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++) {
            const float *from = x + n * token_stride + h * head_stride, *turn = rotation + n * D;
            float *to = out + (n * H + h) * D;
            for (int64_t d = 0; d < D; d += 2) {
                const float a = from[d], b = from[d + 1], c = turn[d], s = turn[d + 1];
                to[d] = a * c - b * s;
                to[d + 1] = a * s + b * c;
            }
        }
}
