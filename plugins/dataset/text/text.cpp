// The data set is a single source.
#include "text.hpp"

namespace tenon::text {

Text::Text(const Options& options)
    : WindowDataset("data.text", options.integer("context"), options.integer("batch")),
      spec_{.path = std::string(options.text("path")),
            .val_path = options.has("val_path") ? std::string(options.text("val_path")) : std::string(),
            .format = std::string(options.text("format")),
            .context = context(),
            .at_least = batch(),
            .vocabulary = options.integer("vocabulary"),
            .val_fraction = options.real("val_fraction"),
            .order = options.choice("order", kOrders)} {}

void Text::open(std::uint64_t seed_order) {
  source_.emplace(spec_, random_key(seed_order, "order"));
  DataInfo& info = mutable_info();
  info.sources = source_->files();
  info.attributes = {{"vocabulary", source_->vocabulary()}};
  info.train_samples = source_->train_windows();
  info.val_samples = source_->val_windows();
}

void Text::copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const {
  split == Split::kTrain ? source_->read_train(sample, tokens, targets)
                         : source_->read_val(sample, tokens, targets);
}

}  // namespace tenon::text
