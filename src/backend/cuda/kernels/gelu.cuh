/* gelu(a) * b, with the same bits in every kernel of many rows.
 *
 * gelu(a) = a / 2 (1 + tanh u) = a / (1 + e^(-2 u)), u = sqrt(2 / pi) (a + 0.044715 a^3). The last
 * form has no cancellation, and the chip's approximate exponential and division are within 1e-6 of
 * it wherever the result counts: the budget is 1e-9 as a mean square. */
#ifndef CUDA_GELU_CUH
#define CUDA_GELU_CUH

__device__ __forceinline__ float gelu_mul(float a, float b)
{
    float u = a * fmaf(0.044715f * a, a, 1.0f);
    return __fdividef(a, 1.0f + __expf(-1.59576912160573071f * u)) * b;
}

__device__ __forceinline__ float4 quad_gelu_mul(float4 a, float4 b)
{
    return make_float4(gelu_mul(a.x, b.x), gelu_mul(a.y, b.y), gelu_mul(a.z, b.z),
                       gelu_mul(a.w, b.w));
}

#endif
