// Linear sites: how a layer multiplies by a weight without knowing number formats.
// A layer declares each product y[m,n] = x[m,k] w[n,k]^T (+ bias) once; the precision policy decides what
// each of the three products (fprop, dgrad, wgrad) does with its operands and what is kept of x for wgrad.
#pragma once

#include <tenon/ops/dense.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

TENON_ABI_BEGIN

class Communicator;
class Device;
class NumericsSink;
struct RandomKey;

/// One site as a policy sees it. Extents are this rank's; `origin_*` place the weight's shard in the global
/// tensor.
struct SiteInfo {
  std::string_view layer;   ///< full name, "h.3.mlp.c_fc"
  std::string_view module;  ///< "linear", "head", "conv", ...
  std::string_view weight;  ///< parameter name
  int layer_index = 0;      ///< position among the layers that have sites
  int layer_count = 0;
  /// Layers whose names share a numbered beginning ("h.3") are one block, every other layer is its own. Heads
  /// are in none: their block is -1.
  int block_index = 0;
  int block_count = 0;
  int site = 0;  ///< within the layer
  /// Position among the sites of the model, which are its GEMM layers, in the order of layers. Heads do not
  /// count: theirs is -1.
  int gemm_index = 0;
  int gemm_count = 0;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t chunk = 0;  ///< rows of one call at most: chunks of this many, then what is left of m
  std::int64_t origin_n = 0, origin_k = 0;
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;  ///< fprop applies it to y, after the bias
  DType activation = DType::kF32;       ///< of x, y, dy, dx
  DType parameter = DType::kF32;        ///< of w and dw
  Communicator* amax_group = nullptr;   ///< ranks over which amax is agreed; null = this rank alone
  std::int64_t steps = 0;               ///< slots of the run, 0 outside runs: for what happens late in it
};

/// Bytes that a site may take at most; the memory plan is static.
struct SiteMemory {
  std::size_t kept = 0;        ///< from fprop to wgrad, per micro-batch
  std::size_t persistent = 0;  ///< weight copies, keyed by the weight's version
  std::size_t scratch = 0;     ///< within one call
};

/// Arguments that the executor passes to each call. Views have exactly the sizes of SiteMemory.
struct SiteCall {
  std::int64_t step = 0;  ///< slot number
  int micro = 0;
  bool training = true;
  std::int64_t first_row = 0;   ///< of x within the site's m rows (chunked layers call several times)
  std::int64_t origin_row = 0;  ///< of this call's row 0 among the rows of all samples of the run
  std::uint64_t weight_version = 0;
  NumericsSink* numerics = nullptr;  ///< receives this call's operands; usually null
  TensorView kept, persistent, scratch;
};

/// Counts operands that passed through a number format other than the activations' own.
class OperandCounter {
 public:
  virtual ~OperandCounter();
  /// format: "bf16", "e4m3", ...; operands: tensors, not elements.
  virtual void count(std::string_view format, std::int64_t operands) = 0;
};

/// Services for a policy while it builds a site. Valid for the life of the executor.
class SiteHost {
 public:
  virtual ~SiteHost();
  virtual Device& device() = 0;
  virtual OperandCounter& operands() = 0;
  virtual RandomKey rounding_key() = 0;  ///< of this site, from seed_rounding
  /// Core-owned, zero at first, saved, hashed and restored: amax history, decisions.
  virtual TensorView state(std::string_view name, DType dtype, const Shape& shape) = 0;
};

class LinearSite {
 public:
  virtual ~LinearSite();
  virtual SiteMemory memory() const = 0;
  /// True if wgrad reads plain x (the executor keeps it); false if it reads `kept` and x is not kept for it.
  virtual bool reads_input() const = 0;
  virtual void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) = 0;
  virtual void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) = 0;
  /// x is empty when !reads_input().
  virtual void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) = 0;
};

TENON_ABI_END
