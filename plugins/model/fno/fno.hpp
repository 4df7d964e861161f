// Model `fno`: the Fourier neural operator (Li et al. 2021) over 1 to 4 dimensions. It maps one real field
// [channels, points...] to another over the same points; no weight depends on their number, so a model
// trained on one grid runs on another.
#pragma once

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::fno {

class Fno final : public Model {
 public:
  static constexpr const char* kActivations[] = {"gelu", "relu", "silu", nullptr};
  static constexpr const char* kNorms[] = {"none", "batch", nullptr};
  static constexpr const char* kLosses[] = {"relative_l2", "mse", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("width", "32").between(1, 2147483647).doc_text("channels of the layers"),
      option::integers("modes", "[12]")
          .between(1, 2147483647)
          .doc_text("modes kept per dimension, or one number for all: at most half of the points, padding "
                    "included, and of the last dimension one more"),
      option::integer("layers", "4").between(1, 10000).doc_text("spectral convolutions"),
      option::text("norm", "\"none\"")
          .one_of(kNorms)
          .doc_text("batch: a batch norm after the sum of spectral and linear part"),
      option::text("activation", "\"gelu\"")
          .one_of(kActivations)
          .doc_text("after every layer but the last, and within the projection; gelu is the exact one"),
      option::reals("padding", "[0]")
          .between(0, 4)
          .doc_text("zeros after the last point, as a share of the side and rounded to points, per dimension "
                    "or one number for all"),
      option::boolean("coordinates", "true").doc_text("adds i / n of every dimension to the channels of x"),
      option::integer("projection", "128").between(1, 2147483647).doc_text("hidden width after the layers"),
      option::integer("refine", "1")
          .between(1, 64)
          .doc_text("points of the target per point of the input along every dimension; what lies between is "
                    "interpolated linearly"),
      option::text("loss", "\"relative_l2\"").one_of(kLosses).doc_text("what is trained"),
      option::text("input", "\"x\"").doc_text("data field to read, real [channels, points...]"),
      option::text("target", "\"y\"").doc_text("data field to predict, real [channels, points...]"),
  };
  static constexpr ComponentInfo kInfo{.id = "fno",
                                       .summary = "Fourier neural operator for fields of 1 to 4 dimensions",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Fno(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  std::vector<std::int64_t> padding(std::span<const std::int64_t> points) const;

  const Options& options_;  // outlives the model
};

}  // namespace tenon::fno
