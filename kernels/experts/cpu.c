/* Mixture-of-experts multiplication straight from packed MXFP4, for few tokens, and decoding for many. float32 inside.

   Sizes: N tokens, M (token, expert) pairs grouped by expert, H hidden, I expert width, K columns of a matrix.
   A group is 32 columns: 16 bytes of codes (low nibble = even column) and one e8m0 scale byte.
   Vectors that are multiplied are kept split: in each group of 32 first the 16 even entries, then the 16 odd ones. */

#include "../pool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define MAX_TOKENS 4

static const float E2M1[16] = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
static float SCALE[256];

__attribute__((constructor)) static void fill_scale(void) {
    for (int b = 0; b < 255; b++) SCALE[b] = ldexpf(1.f, b - 127);
    SCALE[255] = NAN;
}

/* Which instruction set the code below was compiled for: 512, 256 or 0. */
int vector_bits(void) {
#if defined(__AVX512F__)
    return 512;
#elif defined(__AVX2__)
    return 256;
#else
    return 0;
#endif
}

/* y[t][r] += row r of the matrix times x[t], for R rows and T tokens at once; x split, x stride K, result sum[R][T]. */
INLINE void rows_times(const int R, const int T, const uint8_t *codes, const uint8_t *scale, const float *x, int64_t K, float *sum) {
    const int64_t groups = K / 32;
#if defined(__AVX512F__)
    const __m512 lut = _mm512_loadu_ps(E2M1);
    __m512 acc[R][T];
    for (int r = 0; r < R; r++) for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m512 xe[T], xo[T];
        for (int t = 0; t < T; t++) {
            xe[t] = _mm512_loadu_ps(x + t * K + g * 32);
            xo[t] = _mm512_loadu_ps(x + t * K + g * 32 + 16);
        }
        for (int r = 0; r < R; r++) {
            const uint8_t *p = codes + r * (K / 2) + g * 16;
            const __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
            const __m512 even = _mm512_permutexvar_ps(w, lut);
            const __m512 odd = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4), lut);
            const __m512 s = _mm512_set1_ps(SCALE[scale[r * groups + g]]);
            for (int t = 0; t < T; t++)
                acc[r][t] = _mm512_fmadd_ps(_mm512_fmadd_ps(odd, xo[t], _mm512_mul_ps(even, xe[t])), s, acc[r][t]);
        }
    }
    for (int r = 0; r < R; r++) for (int t = 0; t < T; t++) sum[r * T + t] = _mm512_reduce_add_ps(acc[r][t]);
#elif defined(__AVX2__)
    const __m256 lut = _mm256_loadu_ps(E2M1);
    const __m256 sign = _mm256_set1_ps(-0.f);
    __m256 acc[R][T];
    for (int r = 0; r < R; r++) for (int t = 0; t < T; t++) acc[r][t] = _mm256_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        for (int r = 0; r < R; r++) {
            const __m256 s = _mm256_set1_ps(SCALE[scale[r * groups + g]]);
            __m256 part[T];
            for (int t = 0; t < T; t++) part[t] = _mm256_setzero_ps();
            for (int half = 0; half < 2; half++) {
                const uint8_t *p = codes + r * (K / 2) + g * 16 + half * 8;
                const __m256i w = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); /* the odd sign is on top */
                const __m256i v = _mm256_srli_epi32(w, 4);
                const __m256 se = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(w, 28)), sign);
                const __m256 so = _mm256_and_ps(_mm256_castsi256_ps(w), sign);
                const __m256 even = _mm256_xor_ps(_mm256_permutevar8x32_ps(lut, w), se);
                const __m256 odd = _mm256_xor_ps(_mm256_permutevar8x32_ps(lut, v), so);
                for (int t = 0; t < T; t++) {
                    const float *q = x + t * K + g * 32 + half * 8;
                    part[t] = _mm256_fmadd_ps(even, _mm256_loadu_ps(q), part[t]);
                    part[t] = _mm256_fmadd_ps(odd, _mm256_loadu_ps(q + 16), part[t]);
                }
            }
            for (int t = 0; t < T; t++) acc[r][t] = _mm256_fmadd_ps(part[t], s, acc[r][t]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) {
            float lane[8];
            _mm256_storeu_ps(lane, acc[r][t]);
            sum[r * T + t] = ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
        }
#else
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) {
            float acc[8] = {0};
            for (int64_t g = 0; g < groups; g++) {
                const uint8_t *p = codes + r * (K / 2) + g * 16;
                const float *q = x + t * K + g * 32;
                const float s = SCALE[scale[r * groups + g]];
                float part[8] = {0};
                for (int half = 0; half < 2; half++)
                    for (int i = 0; i < 8; i++)
                        part[i] += E2M1[p[half * 8 + i] & 15] * q[half * 8 + i] + E2M1[p[half * 8 + i] >> 4] * q[16 + half * 8 + i];
                for (int i = 0; i < 8; i++) acc[i] += part[i] * s;
            }
            sum[r * T + t] = ((acc[0] + acc[4]) + (acc[1] + acc[5])) + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
        }
#endif
}

#define ROWS(T) (T == 1 ? 4 : 2)

/* `rows` rows (any number) times up to MAX_TOKENS tokens; sum[rows][tokens]. */
static void block_times(int rows, int tokens, const uint8_t *codes, const uint8_t *scale, const float *x, int64_t K, float *sum) {
    int r = 0;
#define CASE(T)                                                                                                              \
    case T:                                                                                                                  \
        for (; r + ROWS(T) <= rows; r += ROWS(T))                                                                            \
            rows_times(ROWS(T), T, codes + r * (K / 2), scale + r * (K / 32), x, K, sum + r * T);                            \
        for (; r < rows; r++) rows_times(1, T, codes + r * (K / 2), scale + r * (K / 32), x, K, sum + r * T);                \
        break;
    switch (tokens) { CASE(1) CASE(2) CASE(3) CASE(4) }
#undef CASE
}

INLINE int64_t split_place(int64_t column) { return (column & ~31) | ((column & 1) << 4) | ((column & 31) >> 1); }

typedef struct {
    const uint8_t *codes, *scale;
    const float *x;
    float *y;
    int64_t N, rows, K;
} Matvec;

static void matvec_part(const void *task, int64_t part) {
    const Matvec *p = task;
    float sum[32 * MAX_TOKENS];
    const int64_t first = part * 32, K = p->K;
    const int count = p->rows - first < 32 ? (int)(p->rows - first) : 32;
    for (int64_t n = 0; n < p->N; n += MAX_TOKENS) {
        const int tokens = p->N - n < MAX_TOKENS ? (int)(p->N - n) : MAX_TOKENS;
        block_times(count, tokens, p->codes + first * (K / 2), p->scale + first * (K / 32), p->x + n * K, K, sum);
        for (int r = 0; r < count; r++) for (int t = 0; t < tokens; t++) p->y[(n + t) * p->rows + first + r] = sum[r * tokens + t];
    }
}

/* y[N][rows] = x[N][K] times the transposed matrix; x in plain order. scratch float [N * K]. */
void mxfp4_matvec(const uint8_t *codes, const uint8_t *scale, const float *x, float *y, int64_t N, int64_t rows, int64_t K, float *scratch, int threads) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < K; c++) scratch[n * K + split_place(c)] = x[n * K + c];
    const Matvec task = {codes, scale, scratch, y, N, rows, K};
    pool_run(matvec_part, &task, (rows + 31) / 32, threads);
}

/* One expert's matrices: codes and scales of gate, up [I][H] and down [H][I]. */
typedef struct {
    const uint8_t *gate, *gate_scale, *up, *up_scale, *down, *down_scale;
} Expert;

typedef struct {
    const Expert *experts;
    const int32_t *begin, *token;
    const float *weight;
    float *split, *hidden, *out;
    int64_t U, N, H, I, up_blocks;
    float limit;
} Mixture;

/* Sixteen rows of gate and up of one expert for its pairs. */
static void up_part(const void *task, int64_t part) {
    const Mixture *p = task;
    const int64_t u = part / p->up_blocks, first = part % p->up_blocks * 16, H = p->H, I = p->I;
    const int rows = I - first < 16 ? (int)(I - first) : 16;
    const Expert *e = p->experts + u;
    for (int64_t m = p->begin[u]; m < p->begin[u + 1]; m += MAX_TOKENS) {
        const int tokens = p->begin[u + 1] - m < MAX_TOKENS ? (int)(p->begin[u + 1] - m) : MAX_TOKENS;
        float gate[16 * MAX_TOKENS], up[16 * MAX_TOKENS];
        block_times(rows, tokens, e->gate + first * (H / 2), e->gate_scale + first * (H / 32), p->split + m * H, H, gate);
        block_times(rows, tokens, e->up + first * (H / 2), e->up_scale + first * (H / 32), p->split + m * H, H, up);
        for (int r = 0; r < rows; r++)
            for (int t = 0; t < tokens; t++) {
                float g = gate[r * tokens + t], v = up[r * tokens + t];
                if (p->limit >= 0.f) {
                    g = g > p->limit ? p->limit : g;
                    v = v > p->limit ? p->limit : (v < -p->limit ? -p->limit : v);
                }
                p->hidden[(m + t) * I + split_place(first + r)] = g / (1.f + expf(-g)) * v * p->weight[m + t];
            }
    }
}

/* Thirty-two columns of the output, all pairs in their order. */
static void down_part(const void *task, int64_t part) {
    const Mixture *p = task;
    const int64_t first = part * 32, H = p->H, I = p->I;
    const int rows = H - first < 32 ? (int)(H - first) : 32;
    for (int64_t n = 0; n < p->N; n++) memset(p->out + n * H + first, 0, rows * sizeof(float));
    for (int64_t u = 0; u < p->U; u++) {
        const Expert *e = p->experts + u;
        for (int64_t m = p->begin[u]; m < p->begin[u + 1]; m += MAX_TOKENS) {
            const int tokens = p->begin[u + 1] - m < MAX_TOKENS ? (int)(p->begin[u + 1] - m) : MAX_TOKENS;
            float sum[32 * MAX_TOKENS];
            block_times(rows, tokens, e->down + first * (I / 2), e->down_scale + first * (I / 32), p->hidden + m * I, I, sum);
            for (int r = 0; r < rows; r++)
                for (int t = 0; t < tokens; t++) p->out[p->token[m + t] * H + first + r] += sum[r * tokens + t];
        }
    }
}

/* out[N][H] = sum over pairs of weight * down(swiglu(gate x, up x)).
   experts[U]; begin[U + 1]: expert u serves pairs begin[u] .. begin[u + 1]; token[M], weight[M]; limit < 0: no clamp.
   scratch: float [M * H + M * I]. */
void mxfp4_experts(const Expert *experts, const int32_t *begin, const int32_t *token, const float *weight, const float *x, float *out,
                   int64_t U, int64_t N, int64_t H, int64_t I, float limit, float *scratch, int threads) {
    const int64_t M = begin[U];
    const Mixture task = {experts, begin, token, weight, scratch, scratch + M * H, out, U, N, H, I, (I + 15) / 16, limit};
    for (int64_t m = 0; m < M; m++)
        for (int64_t c = 0; c < H; c++) scratch[m * H + split_place(c)] = x[token[m] * H + c];
    pool_run(up_part, &task, U * task.up_blocks, threads);
    pool_run(down_part, &task, (H + 31) / 32, threads);
}

/* out[rows][K] float32 = the decoded matrix. */
void mxfp4_decode(const uint8_t *codes, const uint8_t *scale, float *out, int64_t rows, int64_t K, int threads) {
    const int64_t groups = K / 32;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const uint8_t *p = codes + r * (K / 2) + g * 16;
            float *q = out + r * K + g * 32;
            const float s = SCALE[scale[r * groups + g]];
#if defined(__AVX512F__)
            const __m512 lut = _mm512_mul_ps(_mm512_loadu_ps(E2M1), _mm512_set1_ps(s));
            const __m128i w = _mm_loadu_si128((const __m128i *)p), v = _mm_srli_epi16(w, 4);
            _mm512_storeu_ps(q, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(w, v)), lut));
            _mm512_storeu_ps(q + 16, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi8(w, v)), lut));
#else
            for (int i = 0; i < 16; i++) {
                q[2 * i] = E2M1[p[i] & 15] * s;
                q[2 * i + 1] = E2M1[p[i] >> 4] * s;
            }
#endif
        }
}
