// Dataset `json_lines`: one JSON object per line, whose text under one key is a sample of bytes. The model
// reads the first `context` bytes and predicts the next of each; where a text ends early no target counts.
#include <tenon/files.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;
constexpr const char* kOldKey[] = {"field", nullptr};

class JsonLines final : public tenon::IndexedDataset {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::path("path", nullptr).mandatory().doc_text("file with one JSON object per line"),
      tenon::option::text("key", "\"text\"")
          .formerly(kOldKey)
          .doc_text("under which each object has its text"),
      tenon::option::integer("context", "32").between(1, 1 << 20).in_unit("bytes").doc_text("of a sample"),
      batch_option("16"),
      order_option(),
      val_fraction_option("0.1"),
      split_option(),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "json_lines", .summary = "texts of JSON objects, one per line", .options = kOptions};

  explicit JsonLines(const tenon::Options& options)
      : IndexedDataset("data.json_lines", options),
        path_(options.text("path")),
        key_(options.text("key")),
        context_(options.integer("context")) {}

 private:
  tenon::IndexedContent load() override {
    const auto files = tenon::make_posix_files();
    const std::string all = tenon::read_text(*files, path_, kLargestFile);
    std::size_t line = 0;
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t end = std::min(all.find('\n', begin), all.size());
      ++line;
      if (const std::string_view text(all.data() + begin, end - begin); !text.empty())
        texts_.push_back(text_of(text, line));
      begin = end + 1;
    }
    if (texts_.empty()) tenon::fail_config(path_ + ": there is no JSON object in it; expected one per line");

    tenon::IndexedContent content;
    content.fields = {{"tokens", tenon::DType::kI32, {context_}},
                      {"targets", tenon::DType::kI32, {context_}}};
    content.is_target = {false, true};
    content.attributes = {{"vocabulary", 256}};
    content.sources = {{path_, tenon::sha256_of_file(*files, path_)}};
    content.samples = static_cast<std::int64_t>(texts_.size());
    return content;
  }

  void opened(tenon::DataInfo& info) override { info.tokens_per_sample = context_; }

  std::string text_of(std::string_view line, std::size_t number) const {
    const auto refuse = [&](std::size_t column, const std::string& problem) {
      tenon::fail_config(path_ + ":" + std::to_string(number) + ":" + std::to_string(column) + ": " +
                         problem);
    };
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(line);
    } catch (const nlohmann::json::parse_error& error) {
      const std::string text = error.what();  // "[...] parse error at line 1, column 12: syntax error ..."
      refuse(error.byte, "this is no JSON: " + text.substr(std::min(text.find(": ") + 2, text.size())));
    }
    if (!object.is_object()) refuse(1, std::string("expected an object, found ") + object.type_name());
    const auto found = object.find(key_);
    if (found == object.end()) {
      std::string known;
      for (const auto& item : object.items()) known += (known.empty() ? "" : ", ") + item.key();
      refuse(1,
             "the object has no '" + key_ + "', only: " + known + "; option 'key' names the key of the text");
    }
    if (!found->is_string())
      refuse(1, "expected a text under '" + key_ + "', found " + std::string(found->type_name()));
    return found->get<std::string>();
  }

  void copy(bool, std::int64_t index, std::int64_t row,
            std::span<const tenon::TensorView> fields) const override {
    const std::string& text = texts_[static_cast<std::size_t>(index)];
    const auto token = [&](std::int64_t i) {
      return static_cast<std::int32_t>(static_cast<unsigned char>(text[static_cast<std::size_t>(i)]));
    };
    std::int32_t* const tokens = fields[0].as<std::int32_t>() + row * context_;
    std::int32_t* const targets = fields[1].as<std::int32_t>() + row * context_;
    const auto length = static_cast<std::int64_t>(text.size());
    for (std::int64_t i = 0; i < context_; ++i) {
      tokens[i] = i < length ? token(i) : 0;
      targets[i] = i + 1 < length ? token(i + 1) : -1;
    }
  }

  std::string path_, key_;
  std::int64_t context_;
  std::vector<std::string> texts_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.json_lines",
                               .version = "0.1.0",
                               .summary = "texts from JSON lines",
                               .vendor = "author"},
             JsonLines)
