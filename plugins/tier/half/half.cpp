// Tier `half`: rows as bf16 with stochastic rounding, over any other tier.
#include "half_rows.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>

#include <fmt/format.h>

namespace tenon::tier_half {

class Half final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("over", Tier::kKind).doc_text("tier that holds the bf16 rows; absent: host memory"),
  };
  static constexpr ComponentInfo kInfo{.id = "half",
                                       .summary = "rows as bf16 with stochastic rounding, over another tier",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};

  explicit Half(const Options& options) : over_(options.component<Tier>("over")) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    if (spec.dtype != DType::kF32) {
      fail_config(
          fmt::format("row table '{}': tier 'half' stores f32 rows as bf16; these are {}. Choose a precision "
                      "with f32 rows, or another tier",
                      spec.name(), dtype_name(spec.dtype)));
    }
    const RowMemorySpec inner = HalfRows::inner_spec(spec);
    return std::make_unique<HalfRows>(spec,
                                      over_ == nullptr ? make_host_rows(inner, {}) : over_->allocate(inner));
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    const RowMemorySpec inner = HalfRows::inner_spec(spec);
    return over_ == nullptr ? static_cast<std::int64_t>(inner.row_bytes()) * inner.rows()
                            : over_->host_bytes(inner);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  Tier* over_;  ///< null: host memory
};

}  // namespace tenon::tier_half

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_half",
                               .version = "0.1.0",
                               .summary = "rows as bf16 with stochastic rounding"},
             tenon::tier_half::Half)
