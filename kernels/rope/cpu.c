/* Rotation of channel pairs, float32. */

#include "../vectors.h"

/* out[n][h] = x[n][h] with the R channels from `first` on turned by rotation[n]; x has strides per token and head,
   out is [N][H][D]; rotation (cos, sin) [N][R/2], its sines times `sign`. */
void rotate(const float *x, const float *rotation, float *out, int64_t N, int64_t H, int64_t D, int64_t first, int64_t R,
            int64_t token_stride, int64_t head_stride, float sign, int interleaved, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++) {
            const float *from = x + n * token_stride + h * head_stride;
            float *to = out + (n * H + h) * D;
            memcpy(to, from, first * sizeof *to);
            turn(from + first, rotation + n * R, to + first, R, sign, interleaved);
            memcpy(to + first + R, from + first + R, (D - first - R) * sizeof *to);
        }
}
