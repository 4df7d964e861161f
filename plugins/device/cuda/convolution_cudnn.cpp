// Convolutions through cuDNN's C interface. Descriptors and the choice of algorithms are made when a
// convolution is prepared. Only algorithms are allowed that add the products themselves, in a fixed order:
// those by Fourier transforms and Winograd's are off by an order of magnitude more than the bound of a sum,
// and some add by atomics. Without TF32 operands keep all their bits.
#include "convolution_library.hpp"

#if __has_include(<cudnn.h>)
#include "dynamic_library.hpp"

#include <tenon/error.hpp>

#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <vector>

namespace tenon::cuda {
namespace {

/// The library's functions under their names in the header, found at run time.
struct CudnnFunctions {
  // NOLINTBEGIN(bugprone-macro-parentheses): names, in places where parentheses are not allowed
#define TENON_CUDNN_FUNCTIONS(use)                     \
  use(cudnnCreate);                                    \
  use(cudnnDestroy);                                   \
  use(cudnnSetStream);                                 \
  use(cudnnGetVersion);                                \
  use(cudnnGetErrorString);                            \
  use(cudnnGetLastErrorString);                        \
  use(cudnnCreateTensorDescriptor);                    \
  use(cudnnDestroyTensorDescriptor);                   \
  use(cudnnSetTensorNdDescriptor);                     \
  use(cudnnCreateFilterDescriptor);                    \
  use(cudnnDestroyFilterDescriptor);                   \
  use(cudnnSetFilterNdDescriptor);                     \
  use(cudnnCreateConvolutionDescriptor);               \
  use(cudnnDestroyConvolutionDescriptor);              \
  use(cudnnSetConvolutionNdDescriptor);                \
  use(cudnnSetConvolutionMathType);                    \
  use(cudnnGetConvolutionForwardAlgorithm_v7);         \
  use(cudnnGetConvolutionBackwardDataAlgorithm_v7);    \
  use(cudnnGetConvolutionBackwardFilterAlgorithm_v7);  \
  use(cudnnGetConvolutionForwardWorkspaceSize);        \
  use(cudnnGetConvolutionBackwardDataWorkspaceSize);   \
  use(cudnnGetConvolutionBackwardFilterWorkspaceSize); \
  use(cudnnConvolutionForward);                        \
  use(cudnnConvolutionBackwardData);                   \
  use(cudnnConvolutionBackwardFilter)
#define TENON_CUDNN(name) decltype(::name)* name = nullptr
  TENON_CUDNN_FUNCTIONS(TENON_CUDNN);
#undef TENON_CUDNN

  explicit CudnnFunctions(DynamicLibrary& library) {
#define TENON_CUDNN(name) library.resolve(#name, name)
    TENON_CUDNN_FUNCTIONS(TENON_CUDNN);
#undef TENON_CUDNN
  }
#undef TENON_CUDNN_FUNCTIONS
  // NOLINTEND(bugprone-macro-parentheses)

  std::string text(cudnnStatus_t status) const {
    char last[256] = "";
    cudnnGetLastErrorString(last, sizeof(last));
    return fmt::format("{}{}{}", cudnnGetErrorString(status), last[0] == 0 ? "" : ": ", last);
  }
  void check(cudnnStatus_t status, const char* call) const {
    if (status != CUDNN_STATUS_SUCCESS)
      fail_run(fmt::format("device {}: {}: {}", kDeviceName, call, text(status)));
  }
};

#define TENON_DNN(functions, name, ...) (functions).check((functions).name(__VA_ARGS__), #name)

/// The library, started. Its handle serves one thread at a time.
struct Cudnn {
  Cudnn(Queue& q, const DynamicLibrary& opened) : queue(q), library(opened), dnn(library) {}
  ~Cudnn() {
    if (handle != nullptr) dnn.cudnnDestroy(handle);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  Queue& queue;
  DynamicLibrary library;
  CudnnFunctions dnn;
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};

/// Owner of a descriptor. Opaque is the struct that it points to.
template <class Opaque>
using CudnnOwned = std::unique_ptr<Opaque, cudnnStatus_t (*)(Opaque*)>;

/// A shape as the library counts: two or three dimensions after the channels.
struct Geometry {
  int dims = 2;
  std::vector<int> x, w, y, pad, stride, dilation;
  bool fits = true;  ///< equal pads on both sides, and 31 bits for every number of elements

  explicit Geometry(const ConvolutionSpec& spec) {
    const WindowSpec& window = spec.window;
    x = {narrow(spec.batch), narrow(spec.channels)};
    w = {narrow(spec.features), narrow(spec.channels)};
    y = {narrow(spec.batch), narrow(spec.features)};
    if (window.spatial == 1) {  // a line is an image of one row
      for (auto* extents : {&x, &w, &y, &stride, &dilation}) extents->push_back(1);
      pad.push_back(0);
    }
    for (int d = 0; d < window.spatial; ++d) {
      x.push_back(narrow(window.extent[d])), w.push_back(narrow(window.kernel[d]));
      y.push_back(narrow(window.places(d))), stride.push_back(narrow(window.stride[d]));
      dilation.push_back(narrow(window.dilation[d])), pad.push_back(narrow(window.pad_low[d]));
      fits = fits && window.pad_low[d] == window.pad_high[d];
    }
    dims = static_cast<int>(pad.size());
    narrow(spec.batch * spec.channels * window.elements());
    narrow(spec.batch * spec.features * window.places());
  }

 private:
  int narrow(std::int64_t number) {
    if (number > std::numeric_limits<int>::max()) fits = false;
    return static_cast<int>(number);
  }
};

class Descriptors {
 public:
  Descriptors(const CudnnFunctions& dnn, const Geometry& geometry, bool tf32)
      : x(tensor(dnn, geometry.x)),
        y(tensor(dnn, geometry.y)),
        w(filter(dnn, geometry.w)),
        window(made(dnn)) {
    TENON_DNN(dnn, cudnnSetConvolutionNdDescriptor, window.get(), geometry.dims, geometry.pad.data(),
              geometry.stride.data(), geometry.dilation.data(), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    TENON_DNN(dnn, cudnnSetConvolutionMathType, window.get(), tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH);
  }

  CudnnOwned<cudnnTensorStruct> x, y;
  CudnnOwned<cudnnFilterStruct> w;
  CudnnOwned<cudnnConvolutionStruct> window;

 private:
  /// Packed, the last dimension fastest.
  static CudnnOwned<cudnnTensorStruct> tensor(const CudnnFunctions& dnn, const std::vector<int>& extents) {
    cudnnTensorDescriptor_t made = nullptr;
    TENON_DNN(dnn, cudnnCreateTensorDescriptor, &made);
    CudnnOwned<cudnnTensorStruct> owner(made, dnn.cudnnDestroyTensorDescriptor);
    std::vector<int> strides(extents.size(), 1);
    for (std::size_t d = extents.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * extents[d + 1];
    TENON_DNN(dnn, cudnnSetTensorNdDescriptor, made, CUDNN_DATA_FLOAT, static_cast<int>(extents.size()),
              extents.data(), strides.data());
    return owner;
  }
  static CudnnOwned<cudnnFilterStruct> filter(const CudnnFunctions& dnn, const std::vector<int>& extents) {
    cudnnFilterDescriptor_t made = nullptr;
    TENON_DNN(dnn, cudnnCreateFilterDescriptor, &made);
    CudnnOwned<cudnnFilterStruct> owner(made, dnn.cudnnDestroyFilterDescriptor);
    TENON_DNN(dnn, cudnnSetFilterNdDescriptor, made, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
              static_cast<int>(extents.size()), extents.data());
    return owner;
  }
  static CudnnOwned<cudnnConvolutionStruct> made(const CudnnFunctions& dnn) {
    cudnnConvolutionDescriptor_t made = nullptr;
    TENON_DNN(dnn, cudnnCreateConvolutionDescriptor, &made);
    return {made, dnn.cudnnDestroyConvolutionDescriptor};
  }
};

/// Algorithm of one pass.
template <class Algorithm>
struct Choice {
  bool found = false;
  Algorithm algorithm{};
  std::size_t workspace = 0;
};

/// An algorithm that needs more trades memory for the last bit of speed.
constexpr std::size_t kMostWorkspace = std::size_t{256} << 20;

/// The algorithm of `allowed` that the library ranks fastest. ask(most, found, results) queries that ranking,
/// size(algorithm, bytes) the workspace of an algorithm.
template <class Result, class Algorithm, std::size_t N, class Ask, class Size>
Choice<Algorithm> choose(const CudnnFunctions& dnn, const std::array<Algorithm, N>& allowed, const char* call,
                         Ask ask, Size size) {
  constexpr int kMost = 16;
  std::array<Result, kMost> results{};
  int count = 0;
  const cudnnStatus_t status = ask(kMost, &count, results.data());
  if (status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR) return {};
  dnn.check(status, call);
  for (int i = 0; i < count; ++i) {
    const Result& result = results[i];
    if (result.status != CUDNN_STATUS_SUCCESS || result.determinism != CUDNN_DETERMINISTIC ||
        std::find(allowed.begin(), allowed.end(), result.algo) == allowed.end())
      continue;
    std::size_t bytes = 0;
    if (size(result.algo, &bytes) == CUDNN_STATUS_SUCCESS && bytes <= kMostWorkspace)
      return {true, result.algo, bytes};
  }
  return {};
}

class CudnnPasses final : public ConvolutionPasses {
 public:
  CudnnPasses(Cudnn& state, const Geometry& geometry)
      : state_(state), descriptors_(state.dnn, geometry, state.queue.tf32()) {
    const std::lock_guard lock(state_.mutex);
    const CudnnFunctions& dnn = state_.dnn;
    const cudnnTensorDescriptor_t x = descriptors_.x.get(), y = descriptors_.y.get();
    const cudnnFilterDescriptor_t w = descriptors_.w.get();
    const cudnnConvolutionDescriptor_t window = descriptors_.window.get();
    forward_ = choose<cudnnConvolutionFwdAlgoPerf_t>(
        dnn,
        std::array{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                   CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT},
        "cudnnGetConvolutionForwardAlgorithm_v7",
        [&](int most, int* count, auto* results) {
          return dnn.cudnnGetConvolutionForwardAlgorithm_v7(state_.handle, x, w, window, y, most, count,
                                                            results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return dnn.cudnnGetConvolutionForwardWorkspaceSize(state_.handle, x, w, window, y, algorithm,
                                                             bytes);
        });
    input_ = choose<cudnnConvolutionBwdDataAlgoPerf_t>(
        dnn, std::array{CUDNN_CONVOLUTION_BWD_DATA_ALGO_1}, "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        [&](int most, int* count, auto* results) {
          return dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(state_.handle, w, y, window, x, most, count,
                                                                 results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return dnn.cudnnGetConvolutionBackwardDataWorkspaceSize(state_.handle, w, y, window, x, algorithm,
                                                                  bytes);
        });
    weight_ = choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
        dnn, std::array{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1}, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        [&](int most, int* count, auto* results) {
          return dnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(state_.handle, x, y, window, w, most,
                                                                   count, results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return dnn.cudnnGetConvolutionBackwardFilterWorkspaceSize(state_.handle, x, y, window, w, algorithm,
                                                                    bytes);
        });
  }

  bool usable() const { return forward_.found && input_.found && weight_.found; }

  std::size_t scratch_bytes() const override {
    return std::max({forward_.workspace, input_.workspace, weight_.workspace});
  }

  void forward(const float* x, const float* w, float* y, void* scratch) override {
    const std::lock_guard lock(state_.mutex);
    state_.queue.make_current();
    TENON_DNN(state_.dnn, cudnnConvolutionForward, state_.handle, &kOne, descriptors_.x.get(), x,
              descriptors_.w.get(), w, descriptors_.window.get(), forward_.algorithm, scratch,
              forward_.workspace, &kNone, descriptors_.y.get(), y);
  }

  void backward_input(const float* w, const float* dy, float* dx, bool accumulate, void* scratch) override {
    const std::lock_guard lock(state_.mutex);
    state_.queue.make_current();
    TENON_DNN(state_.dnn, cudnnConvolutionBackwardData, state_.handle, &kOne, descriptors_.w.get(), w,
              descriptors_.y.get(), dy, descriptors_.window.get(), input_.algorithm, scratch,
              input_.workspace, accumulate ? &kOne : &kNone, descriptors_.x.get(), dx);
  }

  void backward_weight(const float* x, const float* dy, float* dw, bool accumulate, void* scratch) override {
    const std::lock_guard lock(state_.mutex);
    state_.queue.make_current();
    TENON_DNN(state_.dnn, cudnnConvolutionBackwardFilter, state_.handle, &kOne, descriptors_.x.get(), x,
              descriptors_.y.get(), dy, descriptors_.window.get(), weight_.algorithm, scratch,
              weight_.workspace, accumulate ? &kOne : &kNone, descriptors_.w.get(), dw);
  }

 private:
  /// Factors of the new sum and of the old one, read from the host within a call.
  static constexpr float kOne = 1, kNone = 0;

  Cudnn& state_;
  Descriptors descriptors_;
  Choice<cudnnConvolutionFwdAlgo_t> forward_;
  Choice<cudnnConvolutionBwdDataAlgo_t> input_;
  Choice<cudnnConvolutionBwdFilterAlgo_t> weight_;
};

class CudnnLibrary final : public ConvolutionLibrary {
 public:
  explicit CudnnLibrary(std::unique_ptr<Cudnn> state) : state_(std::move(state)) {}

  std::unique_ptr<ConvolutionPasses> prepare(const ConvolutionSpec& spec) override {
    const Geometry geometry(spec);
    if (!geometry.fits) return nullptr;
    state_->queue.make_current();
    auto passes = std::make_unique<CudnnPasses>(*state_, geometry);
    if (!passes->usable()) return nullptr;
    return passes;
  }

  std::string name() const override {
    const std::size_t version = state_->dnn.cudnnGetVersion();
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

 private:
  std::unique_ptr<Cudnn> state_;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> ConvolutionLibrary::open(Queue& queue, std::string& reason) {
  const DynamicLibrary library({"libcudnn.so.9", "libcudnn.so", "/usr/local/cuda/lib64/libcudnn.so.9"});
  auto state = std::make_unique<Cudnn>(queue, library);
  if (!state->library.usable()) {
    reason = "cuDNN: " + state->library.reason();
    return nullptr;
  }
  queue.make_current();
  cudnnStatus_t status = state->dnn.cudnnCreate(&state->handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    reason = "cudnnCreate: " + state->dnn.text(status);
    state->handle = nullptr;
    return nullptr;
  }
  status = state->dnn.cudnnSetStream(state->handle, static_cast<cudaStream_t>(queue.stream()));
  if (status != CUDNN_STATUS_SUCCESS) {
    reason = "cudnnSetStream: " + state->dnn.text(status);
    return nullptr;
  }
  return std::make_unique<CudnnLibrary>(std::move(state));
}

}  // namespace tenon::cuda

#else

namespace tenon::cuda {

std::unique_ptr<ConvolutionLibrary> ConvolutionLibrary::open(Queue&, std::string& reason) {
  reason = "this program was built where cudnn.h was not";
  return nullptr;
}

}  // namespace tenon::cuda

#endif
