// Transforms through cuFFT's C interface. A plan and its work area are made when a transform is prepared.
#include "fft.hpp"
#include "dynamic_library.hpp"

#include <tenon/error.hpp>

#include <cufft.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// The library's functions under their names in the header, found at run time.
struct CufftFunctions {
  decltype(::cufftPlanMany)* cufftPlanMany = nullptr;
  decltype(::cufftDestroy)* cufftDestroy = nullptr;
  decltype(::cufftSetStream)* cufftSetStream = nullptr;
  decltype(::cufftExecC2C)* cufftExecC2C = nullptr;
  decltype(::cufftExecR2C)* cufftExecR2C = nullptr;
  decltype(::cufftExecC2R)* cufftExecC2R = nullptr;
  decltype(::cufftExecZ2Z)* cufftExecZ2Z = nullptr;
  decltype(::cufftExecD2Z)* cufftExecD2Z = nullptr;
  decltype(::cufftExecZ2D)* cufftExecZ2D = nullptr;

  explicit CufftFunctions(DynamicLibrary& library) {
    library.resolve("cufftPlanMany", cufftPlanMany);
    library.resolve("cufftDestroy", cufftDestroy);
    library.resolve("cufftSetStream", cufftSetStream);
    library.resolve("cufftExecC2C", cufftExecC2C);
    library.resolve("cufftExecR2C", cufftExecR2C);
    library.resolve("cufftExecC2R", cufftExecC2R);
    library.resolve("cufftExecZ2Z", cufftExecZ2Z);
    library.resolve("cufftExecD2Z", cufftExecD2Z);
    library.resolve("cufftExecZ2D", cufftExecZ2D);
  }
};

cufftType transform_type(const LinePlanSpec& spec) {
  if (!spec.real) return spec.doubles ? CUFFT_Z2Z : CUFFT_C2C;
  if (spec.to_modes) return spec.doubles ? CUFFT_D2Z : CUFFT_R2C;
  return spec.doubles ? CUFFT_Z2D : CUFFT_C2R;
}

class CufftPlan final : public LinePlan {
 public:
  CufftPlan(const CufftFunctions& functions, const LinePlanSpec& spec, cufftHandle plan)
      : functions_(functions), spec_(spec), plan_(plan) {}
  ~CufftPlan() override { functions_.cufftDestroy(plan_); }
  CufftPlan(const CufftPlan&) = delete;
  CufftPlan& operator=(const CufftPlan&) = delete;

  void run(void* from, void* to) override {
    const cufftResult result = spec_.doubles ? run_doubles(from, to) : run_floats(from, to);
    if (result != CUFFT_SUCCESS) {
      fail_run(fmt::format("device {}: fft: cuFFT could not start {} lines of {} points: code {}",
                           kDeviceName, spec_.count, spec_.length, static_cast<int>(result)));
    }
  }

 private:
  int direction() const { return spec_.to_modes ? CUFFT_FORWARD : CUFFT_INVERSE; }
  cufftResult run_floats(void* from, void* to) const {
    if (!spec_.real) {
      return functions_.cufftExecC2C(plan_, static_cast<cufftComplex*>(from), static_cast<cufftComplex*>(to),
                                     direction());
    }
    if (spec_.to_modes)
      return functions_.cufftExecR2C(plan_, static_cast<cufftReal*>(from), static_cast<cufftComplex*>(to));
    return functions_.cufftExecC2R(plan_, static_cast<cufftComplex*>(from), static_cast<cufftReal*>(to));
  }
  cufftResult run_doubles(void* from, void* to) const {
    if (!spec_.real) {
      return functions_.cufftExecZ2Z(plan_, static_cast<cufftDoubleComplex*>(from),
                                     static_cast<cufftDoubleComplex*>(to), direction());
    }
    if (spec_.to_modes) {
      return functions_.cufftExecD2Z(plan_, static_cast<cufftDoubleReal*>(from),
                                     static_cast<cufftDoubleComplex*>(to));
    }
    return functions_.cufftExecZ2D(plan_, static_cast<cufftDoubleComplex*>(from),
                                   static_cast<cufftDoubleReal*>(to));
  }

  CufftFunctions functions_;
  LinePlanSpec spec_;
  cufftHandle plan_;
};

}  // namespace

std::unique_ptr<LinePlan> make_line_plan(Queue& queue, const LinePlanSpec& spec, std::string& reason) {
  DynamicLibrary library{"libcufft.so.12", "libcufft.so", "/usr/local/cuda/lib64/libcufft.so.12"};
  const CufftFunctions functions(library);
  reason = library.reason();
  if (!library.usable()) return nullptr;
  cufftHandle plan = 0;
  int length = static_cast<int>(spec.length);
  cufftResult result = functions.cufftPlanMany(&plan, 1, &length, nullptr, 1, length, nullptr, 1, length,
                                               transform_type(spec), static_cast<int>(spec.count));
  if (result != CUFFT_SUCCESS) {
    reason = fmt::format("{} has no plan for {} lines of {} points: code {}", library.name(), spec.count,
                         spec.length, static_cast<int>(result));
    return nullptr;
  }
  auto made = std::make_unique<CufftPlan>(functions, spec, plan);
  result = functions.cufftSetStream(plan, static_cast<cudaStream_t>(queue.stream()));
  if (result != CUFFT_SUCCESS) {
    reason = fmt::format("cufftSetStream: code {}", static_cast<int>(result));
    return nullptr;
  }
  return made;
}

}  // namespace tenon::cuda
