// Model `logistic_regression`: logit = w . dense + b + one weight per row that a sample has; the baseline
// that a model with tables must beat.
#pragma once

#include "click_data.hpp"

namespace tenon::dlrm {

class LogisticRegression final : public Model {
 public:
  static constexpr OptionSpec kOptions[] = {kRows, kRowCap, kMode, kPlacement};
  static constexpr ComponentInfo kInfo{.id = "logistic_regression",
                                       .summary = "linear model of click-through data",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit LogisticRegression(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

}  // namespace tenon::dlrm
