// The data set is a single source.
#include "text.hpp"

#include "conversations.hpp"
#include "mixture.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tenon::text {

WindowDataset::WindowDataset(std::string owner, const Options& options, Host& host)
    : owner_(std::move(owner)), host_(host), batch_(options.integer("batch")) {
  spec_.corpus.owner = owner_;
  spec_.corpus.format = options.text("format");
  spec_.corpus.tokenizer = options.component<Tokenizer>("tokenizer");
  spec_.corpus.cache = options.text("cache");
  spec_.context = options.integer("context");
  spec_.vocabulary = options.integer("vocabulary");
  spec_.val_fraction = options.real("val_fraction");
  spec_.train_fraction = options.real("train_fraction");
  spec_.pack = options.choice("pack", kPacks);
  spec_.split_long = options.choice("long_documents", kLongDocuments);
  read_rule(options);
  const Shape time{spec_.context};
  info_.fields = {{"tokens", DType::kI32, time}, {"targets", DType::kI32, time}};
  if (spec_.pack != Pack::kStream) {
    info_.fields.push_back({"documents", DType::kI32, time});
    info_.fields.push_back({"positions", DType::kI32, time});
  }
  info_.tokens_per_sample = spec_.context;
  if (!options.has("token_bytes")) return;
  if (spec_.corpus.tokenizer != nullptr)
    fail_config(
        fmt::format("{}: token_bytes gives the bytes of tokens whose tokenizer is not at hand, and "
                    "data.tokenizer is; leave it out",
                    owner_));
  token_bytes_.emplace(std::string(options.text("token_bytes")));
  spec_.tokenizer = token_bytes_->size();
}

void WindowDataset::read_rule(const Options& options) {
  DocumentRule& rule = spec_.corpus.rule;
  rule.max_bad_share = options.real("max_bad_share");
  const bool line = options.has("separator_line"), byte = options.has("separator_byte"),
             key = options.has("jsonl_key");
  if (line + byte + key > 1)
    fail_config(fmt::format("{}: expected one of separator_line, separator_byte and jsonl_key, found {}",
                            owner_,
                            !key    ? "the first two"
                            : !byte ? "the first and the last"
                            : !line ? "the last two"
                                    : "all of them"));
  if (line) {
    rule.form = DocumentForm::kLine;
    rule.line = options.text("separator_line");
    if (rule.line.find('\n') != std::string::npos)
      fail_config(
          fmt::format("{}: separator_line: expected one line without its end, found several", owner_));
  }
  if (byte) {
    rule.form = DocumentForm::kByte;
    rule.byte = static_cast<char>(options.integer("separator_byte"));
  }
  if (key) {
    rule.form = DocumentForm::kJsonLines;
    rule.key = options.text("jsonl_key");
  }
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
  const std::int64_t context = spec_.context;
  for (const TensorView& field : fields) {
    if (field.dtype != DType::kI32 || field.elements() != batch_ * context ||
        field.space != MemorySpace::kHost) {
      fail_run(fmt::format("{}: expected i32 {} in host memory for each field, found {} {}", owner_,
                           Shape{batch_, context}.text(), dtype_name(field.dtype), field.shape.text()));
    }
  }
  if (fields.size() != info_.fields.size())
    fail_run(fmt::format("{}: expected {} fields, found {}", owner_, info_.fields.size(), fields.size()));
  const auto at = [&](std::size_t field, std::int64_t row) {
    return field < fields.size() ? fields[field].as<std::int32_t>() + row * context : nullptr;
  };
  for (std::int64_t row = 0; row < request.count; ++row)
    copy(request.split, request.first + row, {at(0, row), at(1, row), at(2, row), at(3, row)});
  for (std::size_t field = 0; field < fields.size(); ++field)
    std::fill(at(field, request.count), at(field, batch_), field == 1 ? -1 : 0);
}

/// Bytes of text of each token; empty where they are not known. A special token is no byte of any text.
std::vector<std::int64_t> WindowDataset::token_lengths() const {
  std::vector<std::int64_t> lengths;
  if (const Tokenizer* const tokenizer = spec_.corpus.tokenizer) {
    for (std::int64_t id = 0; id < tokenizer->vocabulary(); ++id)
      lengths.push_back(
          static_cast<std::int64_t>(tokenizer->token_bytes(static_cast<std::int32_t>(id)).size()));
    for (const SpecialToken& special : tokenizer->special()) lengths.at(special.id) = 0;
  } else if (token_bytes_) {
    for (std::int64_t id = 0; id < token_bytes_->size(); ++id) lengths.push_back(token_bytes_->of(id));
  }
  return lengths;
}

// Each target of the validation split once, wherever samples begin and whatever they leave out.
void WindowDataset::finish_info() {
  const Tokenizer* const tokenizer = spec_.corpus.tokenizer;
  if (tokenizer != nullptr) info_.sources.push_back({"tokenizer", std::string(tokenizer->digest())});
  if (spec_.pack != Pack::kStream) {
    const std::string recipe =
        fmt::format("packing: pack = {}, context = {}, long_documents = {}", kPacks.name(spec_.pack),
                    spec_.context, kLongDocuments.name(spec_.split_long));
    info_.sources.push_back({recipe, sha256_of(std::as_bytes(std::span(recipe)))});
  }
  if (is_text() && token_bytes_) {
    fail_config(fmt::format(
        "{}: token_bytes = '{}' is for files of tokens, and these are plain text, whose tokens are "
        "bytes; leave it out",
        owner_, token_bytes_->path()));
  }
  if (is_text() && tokenizer == nullptr) {
    info_.bytes_per_target = 1;
    return;
  }
  const std::vector<std::int64_t> lengths = token_lengths();
  if (lengths.empty()) return;
  if (token_bytes_)
    info_.sources.push_back(
        {token_bytes_->path(), sha256_of_file(*make_posix_files(), token_bytes_->path())});
  std::vector<std::int32_t> memory(4 * spec_.context);
  std::int32_t* const at = memory.data();
  const SampleFields sample{at, at + spec_.context, at + 2 * spec_.context, at + 3 * spec_.context};
  const std::span<const std::int32_t> targets(sample.targets, static_cast<std::size_t>(spec_.context));
  std::int64_t bytes = 0, counted = 0;
  for (std::int64_t number = 0; number < info_.val_samples; ++number) {
    copy(Split::kVal, number, sample);
    for (const std::int32_t target : targets) {
      if (target < 0) continue;
      if (target >= static_cast<std::int64_t>(lengths.size())) {
        fail_config(fmt::format(
            "{}: token {} of the validation split is beyond the {} tokens of {}; name the tokenizer that "
            "wrote the file",
            owner_, target, lengths.size(),
            token_bytes_ ? fmt::format("tokenizer '{}'", token_bytes_->path()) : "data.tokenizer"));
      }
      bytes += lengths[static_cast<std::size_t>(target)];
      ++counted;
    }
  }
  if (counted > 0) info_.bytes_per_target = static_cast<double>(bytes) / static_cast<double>(counted);
}

Text::Text(const Options& options, Host& host) : WindowDataset("data.text", options, host) {
  SourceSpec& source = spec();
  source.path = options.text("path");
  if (options.has("val_path")) source.val_path = options.text("val_path");
  source.at_least = batch();
  source.order = options.choice("order", kOrders);
}

void Text::open(std::uint64_t seed_order) {
  source_.emplace(spec(), random_key(seed_order, "order"), host());
  DataInfo& info = mutable_info();
  info.sources = source_->files();
  info.attributes = {{"vocabulary", source_->vocabulary()}};
  info.train_samples = source_->train_samples();
  info.val_samples = source_->val_samples();
  finish_info();
}

void Text::copy(Split split, std::int64_t sample, const SampleFields& out) const {
  split == Split::kTrain ? source_->read_train(sample, out) : source_->read_val(sample, out);
}

}  // namespace tenon::text

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.text",
                               .version = "0.1.0",
                               .summary = "text, token files and conversations as data"},
             tenon::text::Text, tenon::text::Mixture, tenon::text::Conversations)
