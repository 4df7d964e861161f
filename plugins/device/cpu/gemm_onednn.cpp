// Products through oneDNN's C interface. Everything expensive is done when the plan is made: primitive,
// memory handles, scratch size. run() only points the handles at the caller's memory.
#include "gemm.hpp"

#include "onednn_handles.hpp"

#include <utility>

namespace tenon::cpu {
namespace {

constexpr std::int64_t kLargestPacked = std::int64_t{32} << 20;  // bytes of scratch

/// Whether B is reordered into the library's own order before the product. Depends on shapes alone, since
/// results may depend on it. Three reasons, all measured (docs/performance.md): rows of B a multiple of 2 KiB
/// apart fall into few cache sets; tiles of bf16 need pairs of rows; and many rows of C repay packing B once.
bool packs(const GemmSpec& spec) {
  if (spec.batch != 1 || spec.a != spec.b) return false;
  const std::int64_t size = dtype_bytes(spec.b, 1), bytes = spec.k * spec.n * size;
  if (bytes == 0 || bytes > kLargestPacked) return false;
  const std::int64_t stride = spec.n * size;
  const bool conflicts = spec.b == DType::kF32 && !spec.transpose_b && stride >= 8192 && stride % 2048 == 0;
  if (conflicts && spec.m >= 128) return true;
  if (spec.transpose_a) return false;
  return spec.transpose_b ? spec.b == DType::kBF16 && spec.m >= 2048 : spec.m >= 1024;
}

dnnl_data_type_t data_type(DType dtype) {
  return dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32;
}

/// The library's own choice of an order for [rows, columns].
dnnl_memory_desc_t matrix_of_any_order(std::int64_t rows, std::int64_t columns, DType dtype) {
  const dnnl_dims_t dims = {rows, columns};
  dnnl_memory_desc_t desc;
  TENON_ONEDNN(dnnl_memory_desc_init_by_tag(&desc, 2, dims, data_type(dtype), dnnl_format_tag_any));
  return desc;
}

/// [batch, rows, columns], stored row-major or, transposed, [batch, columns, rows].
dnnl_memory_desc_t matrix(const GemmSpec& spec, std::int64_t rows, std::int64_t columns, bool transposed,
                          DType dtype) {
  const std::int64_t row = transposed ? 1 : columns, column = transposed ? rows : 1;
  dnnl_memory_desc_t desc;
  if (spec.batch == 1) {
    const dnnl_dims_t dims = {rows, columns}, strides = {row, column};
    TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, 2, dims, data_type(dtype), strides));
  } else {
    const dnnl_dims_t dims = {spec.batch, rows, columns}, strides = {rows * columns, row, column};
    TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, 3, dims, data_type(dtype), strides));
  }
  return desc;
}

dnnl_memory_desc_t row_vector(const GemmSpec& spec, std::int64_t columns) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t flat = {1, columns}, batched = {1, 1, columns};
  const dnnl_dims_t flat_strides = {columns, 1}, batched_strides = {columns, columns, 1};
  if (spec.batch == 1) {
    TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, 2, flat, dnnl_f32, flat_strides));
  } else {
    TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, 3, batched, dnnl_f32, batched_strides));
  }
  return desc;
}

/// One number for every element of a product: a factor in a chain of post-ops, because the library's own
/// run-time scale selects its slow products.
dnnl_memory_desc_t one_number(const GemmSpec& spec) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t ones = {1, 1, 1};
  TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, spec.batch == 1 ? 2 : 3, ones, dnnl_f32, ones));
  return desc;
}

/// Order of the library's post-ops: alpha, C, then bias where alpha would scale it too, then the map.
void append_tail(const GemmSpec& spec, const dnnl_memory_desc_t& bias, dnnl_post_ops_t ops) {
  if (spec.alpha) {
    const dnnl_memory_desc_t alpha = one_number(spec);
    TENON_ONEDNN(dnnl_post_ops_append_binary(ops, dnnl_binary_mul, &alpha));
  }
  if (spec.accumulate) TENON_ONEDNN(dnnl_post_ops_append_sum(ops, 1.0f));
  if (spec.bias && spec.alpha) TENON_ONEDNN(dnnl_post_ops_append_binary(ops, dnnl_binary_add, &bias));
  switch (spec.epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kGeluTanh:
      TENON_ONEDNN(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_gelu_tanh, 0.0f, 0.0f));
      break;
    case Epilogue::kGeluExact:
      TENON_ONEDNN(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_gelu_erf, 0.0f, 0.0f));
      break;
    default:
      fail_plugin("device cpu: oneDNN was given a map that blas.cpp keeps for our own loops");
  }
}

class OnednnGemm final : public Gemm {
 public:
  OnednnGemm(dnnl_engine_t engine, const GemmSpec& spec) : spec_(spec) {
    const dnnl_memory_desc_t a = matrix(spec, spec.m, spec.k, spec.transpose_a, spec.a);
    const dnnl_memory_desc_t b = matrix(spec, spec.k, spec.n, spec.transpose_b, spec.b);
    const dnnl_memory_desc_t c = matrix(spec, spec.m, spec.n, false, spec.c);
    const dnnl_memory_desc_t bias = row_vector(spec, spec.n);
    dnnl_matmul_desc_t matmul;
    const dnnl_memory_desc_t wanted = packs(spec) ? matrix_of_any_order(spec.k, spec.n, spec.b) : b;
    TENON_ONEDNN(dnnl_matmul_desc_init(&matmul, &a, &wanted, spec.bias && !spec.alpha ? &bias : nullptr, &c));
    Attributes attributes;
    scratch_of_caller(attributes);
    PostOps tail;
    TENON_ONEDNN(dnnl_post_ops_create(tail.out()));
    append_tail(spec, bias, tail.get());
    TENON_ONEDNN(dnnl_primitive_attr_set_post_ops(attributes.get(), tail.get()));
    PrimitiveDesc desc;
    const dnnl_status_t found =
        dnnl_primitive_desc_create(desc.out(), &matmul, attributes.get(), engine, nullptr);
    if (found == dnnl_unimplemented) return;
    if (found != dnnl_success) fail_onednn("dnnl_primitive_desc_create", found);
    const char* name = "";
    TENON_ONEDNN(dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &name));
    implementation_ = name;
    const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
    pad_bytes_ = aligned(dnnl_memory_desc_get_size(scratch));
    const dnnl_memory_desc_t* taken = dnnl_primitive_desc_query_md(desc.get(), dnnl_query_weights_md, 0);
    if (dnnl_memory_desc_equal(taken, &b) == 0) prepare_packing(b, *taken, engine);
    make(primitive_, desc);
    TENON_ONEDNN(dnnl_stream_create(stream_.out(), engine, dnnl_stream_default_flags));
    make(a_, a, engine);
    make(b_, b, engine);
    make(c_, c, engine);
    make(bias_, bias, engine);
    make(pad_, *scratch, engine);
    make(alpha_memory_, one_number(spec), engine);
    TENON_ONEDNN(dnnl_memory_set_data_handle(alpha_memory_.get(), &alpha_));
  }

  /// False where the library has nothing for this product, or only its plain loops.
  bool usable() const { return !implementation_.empty() && implementation_.find("ref") == std::string::npos; }

  // Room to align the library's memory, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    const std::size_t bytes = pad_bytes_ + packed_bytes_ + pack_pad_bytes_;
    return bytes == 0 ? 0 : bytes + kOnednnAlignment;
  }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, scratch_bytes());
    TENON_ONEDNN(dnnl_memory_set_data_handle(a_.get(), a.data));
    TENON_ONEDNN(dnnl_memory_set_data_handle(b_.get(), b.data));
    TENON_ONEDNN(dnnl_memory_set_data_handle(c_.get(), c.data));
    std::byte* room = aligned(scratch.data);
    const bool packed = packed_bytes_ > 0;
    if (packed) pack(room + pad_bytes_);
    dnnl_exec_arg_t arguments[6] = {{DNNL_ARG_SRC, a_.get()},
                                    {DNNL_ARG_WEIGHTS, packed ? packed_.get() : b_.get()},
                                    {DNNL_ARG_DST, c_.get()}};
    int count = 3;
    if (pad_bytes_ > 0) {
      TENON_ONEDNN(dnnl_memory_set_data_handle(pad_.get(), room));
      arguments[count++] = {DNNL_ARG_SCRATCHPAD, pad_.get()};
    }
    if (spec_.bias) {
      TENON_ONEDNN(dnnl_memory_set_data_handle(bias_.get(), bias.data));
      const int place = (spec_.alpha ? 1 : 0) + (spec_.accumulate ? 1 : 0);
      arguments[count++] = {
          spec_.alpha ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(place) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS, bias_.get()};
    }
    if (spec_.alpha) {
      alpha_ = alpha;
      arguments[count++] = {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, alpha_memory_.get()};
    }
    TENON_ONEDNN(dnnl_primitive_execute(primitive_.get(), stream_.get(), count, arguments));
    TENON_ONEDNN(dnnl_stream_wait(stream_.get()));
  }

 private:
  void prepare_packing(const dnnl_memory_desc_t& plain, const dnnl_memory_desc_t& order,
                       dnnl_engine_t engine) {
    Attributes attributes;
    scratch_of_caller(attributes);
    PrimitiveDesc desc;
    TENON_ONEDNN(
        dnnl_reorder_primitive_desc_create(desc.out(), &plain, engine, &order, engine, attributes.get()));
    const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
    packed_bytes_ = aligned(dnnl_memory_desc_get_size(&order));
    pack_pad_bytes_ = aligned(dnnl_memory_desc_get_size(scratch));
    make(packing_, desc);
    make(packed_, order, engine);
    make(pack_pad_, *scratch, engine);
  }

  /// Reorders B for the product, at `room`; the library's own scratch follows it.
  void pack(std::byte* room) {
    TENON_ONEDNN(dnnl_memory_set_data_handle(packed_.get(), room));
    dnnl_exec_arg_t arguments[3] = {{DNNL_ARG_FROM, b_.get()}, {DNNL_ARG_TO, packed_.get()}};
    int count = 2;
    if (pack_pad_bytes_ > 0) {
      TENON_ONEDNN(dnnl_memory_set_data_handle(pack_pad_.get(), room + packed_bytes_));
      arguments[count++] = {DNNL_ARG_SCRATCHPAD, pack_pad_.get()};
    }
    TENON_ONEDNN(dnnl_primitive_execute(packing_.get(), stream_.get(), count, arguments));
  }

  GemmSpec spec_;
  std::string implementation_;
  std::size_t pad_bytes_ = 0, packed_bytes_ = 0, pack_pad_bytes_ = 0;
  float alpha_ = 1;
  Primitive primitive_, packing_;
  Stream stream_;
  Memory a_, b_, c_, bias_, pad_, packed_, pack_pad_, alpha_memory_;
};

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

struct Onednn::State {
  Engine engine;
};

Onednn::Onednn() : state_(std::make_unique<State>()) {
  TENON_ONEDNN(dnnl_engine_create(state_->engine.out(), dnnl_cpu, 0));
  // The values are sets of bits: a processor has the feature when it has all its bits. Intel's AVX-512 BF16
  // multiplies half as many numbers per cycle as f32 does (Sapphire and Emerald Rapids), AMD's twice as many.
  const auto has = [isa = dnnl_get_effective_cpu_isa()](dnnl_cpu_isa_t wanted) {
    return (isa & wanted) == wanted;
  };
  native_bf16_ = has(dnnl_cpu_isa_avx512_core_amx) ||
                 (has(dnnl_cpu_isa_avx512_core_bf16) && __builtin_cpu_is("intel") == 0);
  rows_apart_ = has(dnnl_cpu_isa_avx512_core);
}

Onednn::~Onednn() = default;

std::unique_ptr<Gemm> Onednn::gemm(const GemmSpec& spec) const {
  auto plan = std::make_unique<OnednnGemm>(state_->engine.get(), spec);
  if (!plan->usable()) return nullptr;
  return plan;
}

}  // namespace tenon::cpu
