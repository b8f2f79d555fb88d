/* Sixteen floats as one value, in the compiler's own vector type, and loads of float32 or bfloat16 rows as float32. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef uint32_t u16x __attribute__((vector_size(64), aligned(4)));
typedef uint16_t h16 __attribute__((vector_size(32), aligned(2)));

/* How many accumulators of 16 floats the processor's registers hold in one direction of a tile. */
#if defined(__AVX512F__)
#define TILE 4
#else
#define TILE 2
#endif

INLINE v16 load(const float *p) {
    v16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, v16 v) { memcpy(p, &v, sizeof v); }

/* 16 entries from `column` of a row at p; half: bfloat16, else float32. */
INLINE v16 load_row(const void *p, int64_t column, const int half) {
    if (!half) return load((const float *)p + column);
#if defined(__AVX512F__) /* compilers make several instructions of the general form */
    return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const uint16_t *)p + column))), 16);
#else
    h16 h;
    memcpy(&h, (const uint16_t *)p + column, sizeof h);
    const u16x wide = __builtin_convertvector(h, u16x) << 16;
    v16 v;
    memcpy(&v, &wide, sizeof v);
    return v;
#endif
}

INLINE v16 spread(float x) { return (v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

/* max(v, 0), NaN kept. */
INLINE v16 positive(v16 v) {
    typedef int32_t i16x __attribute__((vector_size(64), aligned(4)));
    const i16x kept = ~(v < spread(0.f));
    i16x bits;
    memcpy(&bits, &v, sizeof v);
    bits &= kept;
    memcpy(&v, &bits, sizeof v);
    return v;
}

INLINE float total(v16 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    typedef float v8 __attribute__((vector_size(32)));
    typedef float v4 __attribute__((vector_size(16)));
    v8 a[2];
    memcpy(a, &v, sizeof a);
    a[0] += a[1];
    v4 b[2];
    memcpy(b, a, sizeof b);
    b[0] += b[1];
    return (b[0][0] + b[0][2]) + (b[0][1] + b[0][3]);
#endif
}

/* Sum of x[d]^2, in a fixed order. */
INLINE float sum_of_squares(const float *x, int64_t D) {
    v16 acc[2] = {spread(0.f), spread(0.f)};
    int64_t d = 0;
    for (; d + 32 <= D; d += 32) {
        const v16 a = load(x + d), b = load(x + d + 16);
        acc[0] += a * a;
        acc[1] += b * b;
    }
    float rest = 0.f;
    for (; d < D; d++) rest += x[d] * x[d];
    return total(acc[0] + acc[1]) + rest;
}

/* Dot product, in a fixed order. */
INLINE float dot(const float *x, const float *y, int64_t D) {
    v16 acc[2] = {spread(0.f), spread(0.f)};
    int64_t d = 0;
    for (; d + 32 <= D; d += 32) {
        acc[0] += load(x + d) * load(y + d);
        acc[1] += load(x + d + 16) * load(y + d + 16);
    }
    float rest = 0.f;
    for (; d < D; d++) rest += x[d] * y[d];
    return total(acc[0] + acc[1]) + rest;
}

/* to = the D channels at x in pairs, turned by rotation (cos, sin) [D/2], its sines times `sign`; `to` may be x.
   Pairs are neighbours, or else channels D/2 apart. */
INLINE void turn(const float *x, const float *rotation, float *to, int64_t D, float sign, int interleaved) {
    const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : D / 2;
    for (int64_t i = 0; i < D / 2; i++) {
        const float a = x[i * step], b = x[i * step + apart], c = rotation[2 * i], s = rotation[2 * i + 1] * sign;
        to[i * step] = a * c - b * s;
        to[i * step + apart] = b * c + a * s;
    }
}
