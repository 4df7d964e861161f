// The data set is a single source.
#include "text.hpp"

#include "mixture.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tenon::text {

WindowDataset::WindowDataset(std::string owner, std::int64_t context, std::int64_t batch)
    : owner_(std::move(owner)), context_(context), batch_(batch) {
  info_.fields = {{"tokens", DType::kI32, Shape{context_}}, {"targets", DType::kI32, Shape{context_}}};
  info_.tokens_per_sample = context_;
}

void WindowDataset::read(const BatchRequest& request, std::span<const TensorView> fields) {
  const bool train = request.split == Split::kTrain;
  if (request.first < 0 || request.count < 0 || request.count > batch_ ||
      (!train && request.first + request.count > info_.val_samples)) {
    fail_run(
        fmt::format("{}: samples {} to {} of the {} split were asked for; there are {} per {}, at most {} at "
                    "once",
                    owner_, request.first, request.first + request.count, split_name(request.split),
                    train ? info_.train_samples : info_.val_samples, train ? "epoch" : "pass", batch_));
  }
  for (const TensorView& field : fields) {
    if (field.dtype != DType::kI32 || field.elements() != batch_ * context_ ||
        field.space != MemorySpace::kHost) {
      fail_run(fmt::format("{}: expected i32 {} in host memory for each field, found {} {}", owner_,
                           Shape{batch_, context_}.text(), dtype_name(field.dtype), field.shape.text()));
    }
  }
  if (fields.size() != 2) fail_run(fmt::format("{}: expected 2 fields, found {}", owner_, fields.size()));
  std::int32_t* tokens = fields[0].as<std::int32_t>();
  std::int32_t* targets = fields[1].as<std::int32_t>();
  for (std::int64_t i = 0; i < request.count; ++i, tokens += context_, targets += context_) {
    const std::int64_t sample = request.first + i;
    copy(request.split, sample, tokens, targets);
  }
  const std::int64_t padding = (batch_ - request.count) * context_;
  std::fill(tokens, tokens + padding, 0);
  std::fill(targets, targets + padding, -1);
}

void WindowDataset::open_tokenizer(const Options& options) {
  if (options.has("tokenizer")) tokenizer_.emplace(std::string(options.text("tokenizer")));
}

// Each target of the validation split once, wherever windows begin and whatever they leave out.
void WindowDataset::count_bytes() {
  if (plain_bytes()) {
    if (tokenizer_) {
      fail_config(fmt::format(
          "{}: tokenizer = '{}' is for files of tokens, and these are plain text, whose tokens are bytes; "
          "leave it out",
          owner_, tokenizer_->path()));
    }
    info_.bytes_per_target = 1;
    return;
  }
  if (!tokenizer_) return;
  info_.sources.push_back({tokenizer_->path(), sha256_of_file(*make_posix_files(), tokenizer_->path())});
  std::vector<std::int32_t> tokens(context_), targets(context_);
  std::int64_t bytes = 0, counted = 0;
  for (std::int64_t sample = 0; sample < info_.val_samples; ++sample) {
    copy(Split::kVal, sample, tokens.data(), targets.data());
    for (const std::int32_t target : targets) {
      if (target < 0) continue;
      if (target >= tokenizer_->size()) {
        fail_config(fmt::format(
            "{}: token {} of the validation split is beyond the {} tokens of tokenizer '{}'; name the "
            "tokenizer that wrote the file",
            owner_, target, tokenizer_->size(), tokenizer_->path()));
      }
      bytes += tokenizer_->of(target);
      ++counted;
    }
  }
  if (counted > 0) info_.bytes_per_target = static_cast<double>(bytes) / static_cast<double>(counted);
}

Text::Text(const Options& options)
    : WindowDataset("data.text", options.integer("context"), options.integer("batch")),
      spec_{.path = std::string(options.text("path")),
            .val_path = options.has("val_path") ? std::string(options.text("val_path")) : std::string(),
            .format = std::string(options.text("format")),
            .context = context(),
            .at_least = batch(),
            .vocabulary = options.integer("vocabulary"),
            .val_fraction = options.real("val_fraction"),
            .order = options.choice("order", kOrders)} {
  open_tokenizer(options);
  if (token_bytes() != nullptr) spec_.tokenizer = token_bytes()->size();
}

void Text::open(std::uint64_t seed_order) {
  source_.emplace(spec_, random_key(seed_order, "order"));
  DataInfo& info = mutable_info();
  info.sources = source_->files();
  info.attributes = {{"vocabulary", source_->vocabulary()}};
  info.train_samples = source_->train_windows();
  info.val_samples = source_->val_windows();
  count_bytes();
}

void Text::copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const {
  split == Split::kTrain ? source_->read_train(sample, tokens, targets)
                         : source_->read_val(sample, tokens, targets);
}

}  // namespace tenon::text

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.text",
                               .version = "0.1.0",
                               .summary = "text and token files as data"},
             tenon::text::Text, tenon::text::Mixture)
