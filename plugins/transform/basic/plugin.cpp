// The plugin `tenon.transform_basic`: copies of stored models, untied, mixed, or in another type.
#include "cast.hpp"
#include "merge.hpp"
#include "untie.hpp"

#include <tenon/plugin.hpp>

namespace tenon::transform_basic {

/// Transform `identity`: the model of a run or a folder, as a folder.
class Identity final : public TransformBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "identity", .summary = "a model as it is"};

  explicit Identity(const Options&) {}
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    const StoredModel& source = only_source(sources, kInfo.id);
    return {source.description(), parameters_of(source)};
  }
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    StoredModel& source = only_source(sources, kInfo.id);
    for (const StoredTensor& tensor : source.parameters()) copy_stored(source, tensor.name, tensor, out);
  }
};

}  // namespace tenon::transform_basic

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transform_basic",
                               .version = "0.1.0",
                               .summary = "copies of stored models: untied, mixed, or in another type"},
             tenon::transform_basic::Identity, tenon::transform_basic::Untie, tenon::transform_basic::Merge,
             tenon::transform_basic::Cast)
