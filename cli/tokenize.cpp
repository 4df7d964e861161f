// tenon tokenize: learns a tokenizer from text, writes text as files of tokens and tokens as text, and
// compares two tokenizers. Components of kind tokenizer do the work; here are files, documents and what is
// printed.
#include "command_line.hpp"
#include "offline_host.hpp"

#include "base/elapsed.hpp"
#include "base/file_descriptor.hpp"
#include "base/json_writer.hpp"
#include "config/words.hpp"
#include "loop/named_component.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/sdk/token_files.hpp>
#include <tenon/tokenizer.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <system_error>

namespace tenon::cli {
namespace {

constexpr const char* kActions[] = {"train", "encode", "decode", "compare"};
constexpr double kProgressSeconds = 0.5;

/// A file of text, mapped into memory: a text may be larger than the memory.
class MappedText {
 public:
  explicit MappedText(const std::string& path) {
    const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0)
      fail_config(
          fmt::format("tenon tokenize: cannot open '{}': {}", path, std::generic_category().message(errno)));
    if (!S_ISREG(status.st_mode) || status.st_size == 0)
      fail_config(fmt::format("tenon tokenize: '{}': expected a file with text, found {}", path,
                              S_ISDIR(status.st_mode)   ? "a folder"
                              : S_ISREG(status.st_mode) ? "an empty file"
                                                        : "a device or pipe, which cannot be mapped"));
    size_ = static_cast<std::size_t>(status.st_size);
    memory_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (memory_ == MAP_FAILED)
      fail_config(fmt::format("tenon tokenize: cannot map '{}' into memory: {}", path,
                              std::generic_category().message(errno)));
  }
  ~MappedText() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
  }
  MappedText(MappedText&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_) {}
  MappedText& operator=(MappedText&&) = delete;
  std::string_view text() const { return {static_cast<const char*>(memory_), size_}; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

/// A tokenizer outside of a run.
class OpenTokenizer {
 public:
  OpenTokenizer(Registry& registry, const std::string& type, const Value& table) : type_(type) {
    options_ = std::move(
        resolve_options(component_request(table, registry.describe(Tokenizer::kKind, type), &registry))
            .options);
    registry.create_inner(*options_, host_);
    component_ = registry.create<Tokenizer>(type, *options_, host_);
  }
  Tokenizer& operator*() const { return *component_; }
  Tokenizer* operator->() const { return component_.get(); }
  const std::string& type() const { return type_; }

 private:
  std::string type_;
  OfflineHost host_;
  std::unique_ptr<ResolvedOptions> options_;
  train::NamedComponent<Tokenizer> component_;
};

Value text_value(const std::string& text) {
  Value value(text);
  value.origin = {"command line", 0, 0};
  return value;
}

/// The tokenizer of a file, whose ending says what it is: the table [tokenizer] of a .toml, a model of
/// SentencePiece, or a tokenizer.json. "bytes" is the tokenizer without a file.
std::unique_ptr<OpenTokenizer> open_tokenizer(Registry& registry, const std::string& file) {
  Value table;
  if (file == "bytes") return std::make_unique<OpenTokenizer>(registry, file, table);
  if (file.ends_with(".toml")) {
    const Config config = Config::load(file, {});
    const Value* const written = config.find("tokenizer.type");
    if (written == nullptr || !written->is_text())
      fail_config(fmt::format("tenon tokenize: '{}' has no [tokenizer] with a type", file));
    return std::make_unique<OpenTokenizer>(registry, written->text(), *config.find("tokenizer"));
  }
  table.set("file", text_value(file), {"command line", 0, 0});
  return std::make_unique<OpenTokenizer>(registry, file.ends_with(".model") ? "sentencepiece" : "bpe", table);
}

class Arguments {
 public:
  Arguments(const Command& command, const std::vector<std::string>& arguments)
      : parsed_(parse(command, {"words..."}, arguments)) {
    if (parsed_.values.count("words") > 0) words_ = parsed_.values["words"].as<std::vector<std::string>>();
  }
  bool helped() const { return parsed_.helped; }
  bool has(const char* name) const { return parsed_.values.count(name) > 0; }
  template <typename T>
  T get(const char* name) const {
    return parsed_.values[name].as<T>();
  }
  std::vector<std::string> list(const char* name) const {
    return has(name) ? get<std::vector<std::string>>(name) : std::vector<std::string>();
  }
  std::string action() const {
    const std::vector<std::string> known(std::begin(kActions), std::end(kActions));
    if (words_.empty())
      fail_config(
          fmt::format("tenon tokenize: expected one of {} as the first word (see: tenon tokenize --help)",
                      fmt::join(known, ", ")));
    if (std::ranges::find(known, words_[0]) == known.end())
      fail_config(fmt::format("tenon tokenize: there is no '{}'{} (known: {})", words_[0],
                              config::suggestion(words_[0], known), fmt::join(known, ", ")));
    return words_[0];
  }
  /// The words after the first one. Throws where there are none.
  std::vector<std::string> files(const char* what) const {
    if (words_.size() < 2) fail_config(fmt::format("tenon tokenize {}: name {}", words_[0], what));
    return {words_.begin() + 1, words_.end()};
  }
  std::size_t count() const { return words_.size(); }
  /// Throws for options of other actions.
  void allow(std::initializer_list<const char*> names) const {
    for (const auto& given : parsed_.values) {
      const std::string& name = given.first;
      if (name == "words" || given.second.defaulted()) continue;
      if (std::ranges::none_of(names, [&](const char* allowed) { return name == allowed; }))
        fail_config(
            fmt::format("tenon tokenize {}: --{} belongs to another action (see: tenon tokenize --help)",
                        words_[0], name));
    }
  }
  std::string one_tokenizer() const {
    const std::vector<std::string> all = list("tokenizer");
    if (all.size() != 1)
      fail_config(fmt::format("tenon tokenize {}: expected --tokenizer FILE once, found it {} times",
                              words_[0], all.size()));
    return all[0];
  }
  /// A file that does not exist yet.
  std::string new_file() const {
    auto path = get<std::string>("out");
    if (path.empty()) fail_config("tenon tokenize: --out is empty; name a new file");
    if (make_posix_files()->exists(path))
      fail_config(fmt::format("tenon tokenize {}: --out '{}' exists; name a new file", words_[0], path));
    return path;
  }

 private:
  Parsed parsed_;
  std::vector<std::string> words_;
};

/// A line of progress now and then, on standard error.
class Progress {
 public:
  explicit Progress(std::int64_t bytes) : bytes_(bytes), terminal_(::isatty(STDERR_FILENO) == 1) {}
  void at(std::int64_t done, std::int64_t tokens) {
    if (!terminal_ || base::seconds_since(last_line_) < kProgressSeconds) return;
    last_line_ = base::Steady::now();
    shown_ = true;
    print_progress(terminal_,
                   fmt::format("{:3.0f} %  {} tokens",
                               100.0 * static_cast<double>(done) / static_cast<double>(bytes_), tokens),
                   false);
  }
  ~Progress() {
    if (shown_) print_progress(terminal_, "", false);
  }

 private:
  std::int64_t bytes_;
  bool terminal_, shown_ = false;
  base::Steady::time_point last_line_ = base::Steady::now();
};

DocumentRule document_rule(const Arguments& arguments) {
  DocumentRule rule;
  int forms = 0;
  if (arguments.has("line")) {
    rule.form = DocumentForm::kLine;
    rule.line = arguments.get<std::string>("line");
    ++forms;
  }
  if (arguments.has("byte")) {
    const int byte = arguments.get<int>("byte");
    if (byte < 0 || byte > 255)
      fail_config(fmt::format("tenon tokenize: --byte is {}, expected 0 to 255", byte));
    rule.form = DocumentForm::kByte;
    rule.byte = static_cast<char>(byte);
    ++forms;
  }
  if (arguments.has("jsonl")) {
    rule.form = DocumentForm::kJsonLines;
    rule.key = arguments.get<std::string>("jsonl");
    ++forms;
  }
  if (forms > 1)
    fail_config("tenon tokenize: --line, --byte and --jsonl each say what a document is; give one");
  return rule;
}

std::string bytes_per_token(std::int64_t bytes, std::int64_t tokens) {
  return tokens == 0 ? "-" : fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(tokens));
}

void train_tokenizer(Registry& registry, const Arguments& arguments) {
  arguments.allow({"type", "vocabulary", "special", "pattern", "out"});
  const std::vector<std::string> paths = arguments.files("files of text");
  if (!arguments.has("vocabulary") || !arguments.has("out"))
    fail_config("tenon tokenize train: usage: tenon tokenize train --vocabulary N --out FILE TEXT...");
  const std::string out = arguments.new_file();
  Value table;
  if (arguments.has("pattern"))
    table.set("pattern", text_value(arguments.get<std::string>("pattern")), {"command line", 0, 0});
  const OpenTokenizer tokenizer(registry, arguments.get<std::string>("type"), table);
  auto* const training = static_cast<TokenizerTraining*>(tokenizer->query(TokenizerTraining::kId));
  if (training == nullptr)
    fail_config(fmt::format("tenon tokenize train: tokenizer {} is not learned from text", tokenizer.type()));
  std::vector<MappedText> maps;
  std::vector<std::string_view> texts;
  std::int64_t bytes = 0;
  for (const std::string& path : paths) {
    maps.emplace_back(path);
    texts.push_back(maps.back().text());
    bytes += static_cast<std::int64_t>(texts.back().size());
  }
  const auto begin = base::Steady::now();
  const std::string file =
      training->train(texts, {arguments.get<std::int64_t>("vocabulary"), arguments.list("special")});
  const double seconds = base::seconds_since(begin);
  make_posix_files()->write_text_atomically(out, file);
  Value of_file;
  of_file.set("file", text_value(out), {"command line", 0, 0});
  const OpenTokenizer made(registry, tokenizer.type(), of_file);
  std::cout << fmt::format("{}: {} tokens from {} bytes of text in {:.1f} s, digest {}\n", out,
                           made->vocabulary(), bytes, seconds, made->digest());
}

void encode_files(Registry& registry, const Arguments& arguments) {
  arguments.allow({"tokenizer", "line", "byte", "jsonl", "out"});
  const std::vector<std::string> paths = arguments.files("files of text");
  const DocumentRule rule = document_rule(arguments);
  const auto tokenizer = open_tokenizer(registry, arguments.one_tokenizer());
  const auto files = make_posix_files();
  std::optional<TokenFileWriter> writer;
  if (arguments.has("out")) writer.emplace(*files, arguments.new_file(), **tokenizer);
  std::vector<MappedText> maps;
  std::int64_t bytes = 0, done = 0;
  for (const std::string& path : paths) {
    maps.emplace_back(path);
    bytes += static_cast<std::int64_t>(maps.back().text().size());
  }
  Progress progress(bytes);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string_view text = maps[i].text();
    const DocumentCounts counts = for_each_document(text, rule, paths[i], [&](const TextDocument& document) {
      if (!writer) {
        std::cout << fmt::format("{}\n", fmt::join((*tokenizer)->encode(document.text), " "));
        return;
      }
      writer->append_document(document, **tokenizer);
      done += static_cast<std::int64_t>(document.text.size() + document.separator.size());
      progress.at(done, writer->tokens());
    });
    if (counts.bad > 0)
      std::cerr << fmt::format("tenon tokenize: {}: {} of {} lines are left out; {}\n", paths[i], counts.bad,
                               counts.lines, counts.first_bad);
  }
  if (!writer) return;
  writer->finish();
  std::cout << fmt::format("{}: {} tokens of {} documents, {} bytes per token\n",
                           arguments.get<std::string>("out"), writer->tokens(), writer->documents(),
                           bytes_per_token(bytes, writer->tokens()));
}

std::vector<std::int32_t> ids_of_words(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
    if (*at == ' ' || *at == ',' || *at == '\n') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      fail_config(fmt::format("tenon tokenize decode: --ids: expected whole numbers, found '{}'", text));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// Tokens of a file in llm.c's layout, in order, in blocks.
void for_tokens(FileSystem& files, const std::string& path,
                const std::function<void(std::span<const std::int32_t>)>& each) {
  constexpr std::int64_t kHeader = 1024, kBlock = 1 << 16;
  const auto file = files.open(path);
  std::int32_t header[3] = {};
  if (file->size() >= kHeader) file->read(0, std::as_writable_bytes(std::span(header)));
  const std::int64_t width = header[0] == 20240520 ? 2 : header[0] == 20240801 ? 4 : 0;
  if (width == 0 || header[2] < 0 || file->size() != kHeader + width * header[2])
    fail_config(fmt::format(
        "tenon tokenize decode: '{}' is no whole file of tokens as `tenon tokenize encode` writes "
        "them: expected a header of llm.c and as many tokens as it says",
        path));
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> ids;
  for (std::int64_t at = 0; at < header[2]; at += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, header[2] - at);
    bytes.resize(static_cast<std::size_t>(count * width));
    file->read(kHeader + at * width, bytes);
    ids.assign(static_cast<std::size_t>(count), 0);
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::memcpy(&ids[i], bytes.data() + static_cast<std::int64_t>(i) * width,
                  static_cast<std::size_t>(width));
    each(ids);
  }
}

void decode_files(Registry& registry, const Arguments& arguments) {
  arguments.allow({"tokenizer", "ids"});
  const auto tokenizer = open_tokenizer(registry, arguments.one_tokenizer());
  if (arguments.has("ids")) {
    if (arguments.count() > 1)
      fail_config("tenon tokenize decode: give --ids or a file of tokens, found both");
    std::cout << (*tokenizer)->decode(ids_of_words(arguments.get<std::string>("ids"))) << "\n";
    return;
  }
  const auto files = make_posix_files();
  for (const std::string& path : arguments.files("a file of tokens, or --ids")) {
    if (const std::string index = document_index_path(path); files->exists(index)) {
      const DocumentIndex documents = read_document_index(*files, index);
      if (documents.tokenizer != (*tokenizer)->digest())
        fail_config(fmt::format(
            "tenon tokenize decode: '{}' was written by the tokenizer with digest {}, and this one "
            "has {}; name the tokenizer that wrote it",
            path, documents.tokenizer, (*tokenizer)->digest()));
    }
    for_tokens(*files, path,
               [&](std::span<const std::int32_t> ids) { std::cout << (*tokenizer)->decode(ids); });
  }
  std::cout << std::flush;
}

void compare_tokenizers(Registry& registry, const Arguments& arguments) {
  arguments.allow({"tokenizer", "json"});
  const std::vector<std::string> names = arguments.list("tokenizer");
  if (names.size() != 2)
    fail_config(fmt::format("tenon tokenize compare: expected --tokenizer FILE twice, found it {} times",
                            names.size()));
  const std::vector<std::string> paths = arguments.files("files of text");
  const std::unique_ptr<OpenTokenizer> tokenizers[] = {open_tokenizer(registry, names[0]),
                                                       open_tokenizer(registry, names[1])};
  struct Line {
    std::string file;
    std::int64_t bytes = 0, tokens[2] = {};
  };
  std::vector<Line> lines;
  Line all{"together"};
  for (const std::string& path : paths) {
    const MappedText map(path);
    Line line{path, static_cast<std::int64_t>(map.text().size())};
    all.bytes += line.bytes;
    for (int i = 0; i < 2; ++i) {
      line.tokens[i] = static_cast<std::int64_t>((*tokenizers[i])->encode(map.text()).size());
      all.tokens[i] += line.tokens[i];
    }
    lines.push_back(line);
  }
  if (lines.size() > 1) lines.push_back(all);
  if (arguments.has("json")) {
    JsonWriter json;
    json.begin_object();
    json.begin_array("tokenizers");
    for (int i = 0; i < 2; ++i) {
      json.begin_object();
      json.member("file", names[static_cast<std::size_t>(i)]);
      json.member("vocabulary", (*tokenizers[i])->vocabulary());
      json.member("digest", (*tokenizers[i])->digest());
      json.end_object();
    }
    json.end_array();
    json.objects("texts", lines, [&](const Line& line) {
      json.member("file", line.file);
      json.member("bytes", line.bytes);
      json.member("tokens_first", line.tokens[0]);
      json.member("tokens_second", line.tokens[1]);
    });
    json.end_object();
    std::cout << json.take();
    return;
  }
  for (int i = 0; i < 2; ++i)
    std::cout << fmt::format("{}: {}, {} tokens, digest {}\n", i == 0 ? "first" : "second",
                             names[static_cast<std::size_t>(i)], (*tokenizers[i])->vocabulary(),
                             (*tokenizers[i])->digest().substr(0, 16));
  std::cout << fmt::format("\n{:>12} {:>12} {:>12} {:>9} {:>9} {:>9}  {}\n", "bytes", "first", "second",
                           "bytes/1st", "bytes/2nd", "2nd/1st", "text");
  for (const Line& line : lines)
    std::cout << fmt::format("{:>12} {:>12} {:>12} {:>9} {:>9} {:>9}  {}\n", line.bytes, line.tokens[0],
                             line.tokens[1], bytes_per_token(line.bytes, line.tokens[0]),
                             bytes_per_token(line.bytes, line.tokens[1]),
                             bytes_per_token(line.tokens[1], line.tokens[0]), line.file);
}

void declare_tokenize(po::options_description& options) {
  const auto text = [&](const char* name, const char* help) {
    options.add_options()(name, po::value<std::string>(), help);
  };
  const auto texts = [&](const char* name, const char* help) {
    options.add_options()(name, po::value<std::vector<std::string>>()->composing(), help);
  };
  texts("tokenizer", "FILE  tokenizer.json, a .model, a .toml with [tokenizer], or bytes; compare takes two");
  text("out", "FILE  that train or encode writes, which must be new; encode prints ids without it");
  options.add_options()("type", po::value<std::string>()->default_value("bpe"),
                        "TYPE  of train: component of kind tokenizer that is learned, default bpe");
  options.add_options()("vocabulary", po::value<std::int64_t>(),
                        "N  of train: tokens, special ones among them");
  texts("special", "TEXT  of train: a special token (repeatable); the first one ends a text");
  text("pattern", "P  of train: gpt2 (default), llama3 or a regular expression of pieces");
  text("line", "TEXT  of encode: documents lie between lines that are TEXT");
  options.add_options()("byte", po::value<int>(), "N  of encode: documents lie between bytes N");
  text("jsonl", "KEY  of encode: a JSON object per line, with the document under KEY");
  text("ids", "IDS  of decode: whole numbers instead of a file");
  options.add_options()("json", "of compare: print the counts as JSON");
}

int run_tokenize(const std::vector<std::string>& words) {
  const Arguments arguments(kTokenize, words);
  if (arguments.helped()) return 0;
  const std::string action = arguments.action();
  Runtime runtime;
  runtime.discover({});
  try {
    if (action == "train") train_tokenizer(runtime.registry(), arguments);
    if (action == "encode") encode_files(runtime.registry(), arguments);
    if (action == "decode") decode_files(runtime.registry(), arguments);
    if (action == "compare") compare_tokenizers(runtime.registry(), arguments);
  } catch (...) {
    rethrow_noted_call();
  }
  return 0;
}

}  // namespace

const Command kTokenize{"tokenize", "train | encode | decode | compare [options] FILES",
                        "Learn a tokenizer, write text as tokens and back, compare tokenizers.", run_tokenize,
                        declare_tokenize};

}  // namespace tenon::cli
