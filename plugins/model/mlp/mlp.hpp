// Model `mlp`: a multilayer perceptron that classifies samples. It reads one real data field of any shape and
// one i32 class per sample, -1 = ignored.
#pragma once

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

namespace tenon::mlp {

class Mlp final : public Model {
 public:
  enum class Activation : std::uint8_t { kRelu, kGeluTanh, kGeluExact };
  static constexpr auto kActivations = option::choice<Activation>({{"relu", Activation::kRelu},
                                                                   {"gelu_tanh", Activation::kGeluTanh},
                                                                   {"gelu_exact", Activation::kGeluExact}});
  static constexpr OptionSpec kOptions[] = {
      option::integers("hidden", "[128]")
          .between(1, 2147483647)
          .doc_text("widths of the hidden layers; [] makes a linear model"),
      option::text("activation", "\"relu\"").one_of(kActivations).doc_text("after each hidden layer"),
      option::integer("classes", nullptr)
          .between(2, 2147483647)
          .doc_text("columns of the result; absent: the data's 'classes'"),
      option::real("dropout", "0").between(0, 0.999).doc_text("probability after each hidden activation"),
      option::text("inputs", nullptr).doc_text("data field to read; absent: the only real one"),
      option::text("targets", nullptr)
          .doc_text("data field of classes; absent: the only i32 one of one number"),
  };
  static constexpr ComponentInfo kInfo{.id = "mlp",
                                       .summary = "multilayer perceptron for classification",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Mlp(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

}  // namespace tenon::mlp
