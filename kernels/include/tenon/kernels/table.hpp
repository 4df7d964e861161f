// The shape of a kernel set: one struct of function pointers per family of operators.
// Sets are constants (no state), free to share among threads; dispatch.hpp chooses one.
#pragma once

#include <tenon/kernels/attention.hpp>
#include <tenon/kernels/cached_attention.hpp>
#include <tenon/kernels/causal_conv.hpp>
#include <tenon/kernels/convolution.hpp>
#include <tenon/kernels/elementwise.hpp>
#include <tenon/kernels/gated_norm.hpp>
#include <tenon/kernels/gemm.hpp>
#include <tenon/kernels/interaction.hpp>
#include <tenon/kernels/mor.hpp>
#include <tenon/kernels/norm.hpp>
#include <tenon/kernels/quantize.hpp>
#include <tenon/kernels/reduce.hpp>
#include <tenon/kernels/softmax.hpp>
#include <tenon/kernels/ssd.hpp>
#include <tenon/kernels/window.hpp>

namespace tenon::kernels {

/// All operators on storage type S.
template <class S>
struct Ops {
  GemmOps<S> gemm;
  AttentionOps<S> attention;
  CachedAttentionOps<S> cached_attention;
  NormOps<S> norm;
  ElementwiseOps<S> elementwise;
  SoftmaxOps<S> softmax;
  EmbeddingOps<S> embedding;
  ReduceOps<S> reduce;
  WindowOps<S> window;
  BatchNormOps<S> batch_norm;
  InteractionOps<S> interaction;
  SsdOps<S> ssd;
  CausalConvOps<S> causal_conv;
  GatedNormOps<S> gated_norm;
};

/// One kernel set.
struct KernelTable {
  const char* name;  ///< "reference", "portable", "avx2", "avx512" or "amx"
  Ops<float> f32;
  Ops<Bf16> bf16;
  ConvertOps convert;
  BatchedComplexGemmOps<float> modes;
  ConvolutionOps convolution = {};  ///< null where the set has none
  QuantizeOps<float> quantize_f32 = {};
  QuantizeOps<Bf16> quantize_bf16 = {};
  MorOps mor = {};
};

/// Operators on double exist in the reference form only.
struct DoubleTable {
  Ops<double> f64;
  BatchedComplexGemmOps<double> modes;
  SsdOps<double> ssd_chunked;
};

}  // namespace tenon::kernels
