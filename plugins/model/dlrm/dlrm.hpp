// Model `dlrm`: the deep learning recommendation model of Naumov et al. 2019 (arXiv 1906.00091). A bottom
// perceptron maps the dense numbers to the width of the tables, products of all pairs of vectors go into a
// top perceptron, which ends in one logit.
#pragma once

#include "click_data.hpp"

namespace tenon::dlrm {

class Dlrm final : public Model {
 public:
  static constexpr const char* kInteractions[] = {"dot", "cat", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integers("bottom", "[64, 16]")
          .between(1, 2147483647)
          .doc_text("widths of the bottom layers; the last is the width of the tables"),
      option::integers("top", "[64, 1]")
          .between(1, 2147483647)
          .doc_text("widths of the top layers; the last is 1"),
      kRows,
      kRowCap,
      kMode,
      kPlacement,
      option::text("interaction", "\"dot\"")
          .one_of(kInteractions)
          .doc_text("what goes into the top layers: products of all pairs, or the vectors themselves"),
      option::boolean("itself", "false").doc_text("dot: also the product of each vector with itself"),
  };
  static constexpr ComponentInfo kInfo{.id = "dlrm",
                                       .summary = "recommendation model of perceptrons and tables",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Dlrm(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

}  // namespace tenon::dlrm
