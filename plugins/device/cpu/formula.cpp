// Formulas over flat tensors (family FormulaOps). Known rules run as loops that were compiled from their
// text, other formulas are interpreted (formula_loops.hpp).
#include "common.hpp"
#include "device_common/formulas.hpp"
#include "formula_loops.hpp"

#include <tenon/sdk/update_rule.hpp>

#include <array>
#include <string_view>

namespace tenon::cpu {
namespace {

FormulaLoops loops_for(std::string_view set) {
#if TENON_HAS_FORMULA_AVX512
  if (set == "avx512" || set == "amx") return formula_loops_avx512();
#endif
#if TENON_HAS_FORMULA_AVX2
  if (set == "avx2") return formula_loops_avx2();
#endif
  return formula_loops_portable();
}

class CpuFormulaOps final : public FormulaOps {
 public:
  explicit CpuFormulaOps(const Kernels& kernels) : loops_(loops_for(kernels.table->name)) {}

  void evaluate(const Formula& formula, std::span<const TensorView> tensors,
                std::span<double> sums) override {
    device_arguments::check_formula(formula, tensors, sums);
    with_arithmetic(tensors[0].dtype, "formula", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t n = tensors[0].elements();
      std::array<T*, Formula::kMostTensors> whole{};
      for (std::size_t i = 0; i < tensors.size(); ++i)
        whole[i] = checked<T>(tensors[i], n, "formula", "a tensor");
      const auto constants = rounded_constants<T>(formula);
      const FormulaLoopsOf<T>& loops = loops_of<T>();
      const std::size_t rule = rules_.find(formula);
      const auto steps = formula.steps();
      for_update_blocks(n, sums, [&](std::int64_t begin, std::int64_t end, double* found) {
        std::array<T*, Formula::kMostTensors> part{};
        for (std::size_t i = 0; i < tensors.size(); ++i) part[i] = whole[i] + begin;
        if (rule != rules_.kNone) return loops.rules[rule](part.data(), constants.data(), end - begin, found);
        loops.interpret(steps.data(), steps.size(), part.data(), constants.data(), formula.constants().size(),
                        end - begin, found);
      });
    });
  }

 private:
  template <class T>
  const FormulaLoopsOf<T>& loops_of() const {
    if constexpr (std::is_same_v<T, float>) {
      return loops_.f32;
    } else {
      return loops_.f64;
    }
  }

  device_arguments::RecordedRules<UpdateRules> rules_;
  FormulaLoops loops_;
};

}  // namespace

std::unique_ptr<FormulaOps> make_formula_ops(const Kernels& kernels) {
  return std::make_unique<CpuFormulaOps>(kernels);
}

}  // namespace tenon::cpu
