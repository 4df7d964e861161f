// tenon export: the weights of a run's checkpoint, or of a model folder, under the names that other programs
// use, in one file or in shards with an index. Tensors pass one by one.
#include "command_line.hpp"
#include "export_weights.hpp"
#include "offline_host.hpp"
#include "trained_run.hpp"

#include "base/json_writer.hpp"
#include "models/model_folder.hpp"
#include "plugin/guard.hpp"
#include "store/safetensors.hpp"

#include <tenon/error.hpp>
#include <tenon/model.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <limits>

namespace tenon::cli {
namespace {

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::optional<DType> asked_dtype(const po::variables_map& values) {
  if (values.count("dtype") == 0) return std::nullopt;
  const auto& name = values["dtype"].as<std::string>();
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  fail_config(fmt::format("tenon export: --dtype is '{}', expected f32 or bf16", name));
}

/// "512MiB" as bytes.
std::int64_t asked_bytes(const std::string& text) {
  constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {{"", 1},
                                                                  {"B", 1},
                                                                  {"KB", 1000},
                                                                  {"MB", 1000000},
                                                                  {"GB", 1000000000},
                                                                  {"KiB", std::int64_t{1} << 10},
                                                                  {"MiB", std::int64_t{1} << 20},
                                                                  {"GiB", std::int64_t{1} << 30}};
  std::int64_t number = 0, bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, std::int64_t>::first);
  if (error != std::errc() || number < 1 || found == std::end(kUnits) ||
      __builtin_mul_overflow(number, found->second, &bytes))
    fail_config(fmt::format(
        "tenon export: --max-shard is '{}', expected a size such as 512MiB or 5GB, of at least one byte",
        text));
  return bytes;
}

/// What is exported: a run, or a model folder.
class Source {
 public:
  explicit Source(const std::string& path) : files_(make_posix_files()) {
    const std::string folder = models::model_folder_at(*files_, path);
    if (folder.empty()) {
      run_ = std::make_unique<TrainedRun>("export", path);
      return;
    }
    runtime_.emplace();
    runtime_->discover({});
    paths_ = std::make_unique<models::StoredModelPaths>("tenon export", *files_, runtime_->registry(), host_);
    host_.set_stored_models(paths_.get());
    folder_ = std::make_unique<models::ModelFolder>(*files_, runtime_->registry(), host_, folder);
  }

  FileSystem& files() { return *files_; }
  /// The file of the tokenizer of a run's data, where other programs can read it. Known once plan() is.
  const std::vector<ExportedFile>& tokenizer() const { return tokenizer_; }
  /// Without rules where the model's plugin has none.
  NamePlan plan() { return run_ != nullptr ? plan_of_run() : plan_of_folder(); }
  /// Why nothing but weights can be written: a graph that [model] edits is not the one that the model's
  /// plugin describes to other programs. "" where it is that one.
  std::string edits() {
    std::vector<std::string> edits;
    if (run_ != nullptr) {
      for (const Member& member : run_->checked().model_edits.table())
        edits.push_back("[[model." + member.key + "]]");
    } else {
      for (const std::string& key : config::core_keys("model"))
        if (folder_->description().model.find(key) != nullptr) edits.push_back("[[model." + key + "]]");
    }
    if (edits.empty()) return "";
    return fmt::format("the graph was edited ({}), so it may no longer be one that those files describe",
                       fmt::join(edits, ", "));
  }
  /// The checkpoint of slot `step`, or the newest that is intact.
  StoredModel& open(std::optional<std::int64_t> step) {
    if (run_ == nullptr) {
      if (step)
        fail_config(fmt::format("tenon export: --step {}: {} is a model folder, which has no steps", *step,
                                folder_->folder()));
      return *folder_;
    }
    checkpoint_ = run_->open(step);
    return *checkpoint_;
  }
  /// Digest of the weights as they are stored: `weights_hash` of a run at that slot.
  std::string hash() {
    if (run_ == nullptr) return std::string(folder_->digest());
    StateHasher hasher;
    const ReadRows read = rows_of(*checkpoint_);
    for (const StoredTensor& tensor : checkpoint_->parameters()) {
      hasher.begin(tensor.name, tensor.dtype, tensor.shape);
      const NameGroup same{{tensor}, {tensor}, 1, false};
      translate(same, Direction::kExport, 0, tensor.dtype, read,
                [&](TensorView piece) { hasher.feed(piece.raw()); });
      hasher.end();
    }
    return hasher.hex();
  }
  /// Replicas that train alone and are not averaged at this slot are no single model.
  std::string whose() const {
    if (run_ == nullptr) return "";
    const std::vector<train::StoredWeights>& weights = checkpoint_->weights();
    if (weights.size() == 1 || !weights.front().own()) return "";
    return fmt::format(", replica 0 of {}", weights.size());
  }

 private:
  NamePlan plan_of_run() {
    const train::NamedComponent<Model> model = run_->make<Model>("model");
    auto* names = static_cast<ModelNames*>(model->query(ModelNames::kId));
    if (names == nullptr) return {};
    const train::NamedComponent<Dataset> data = run_->make<Dataset>("data");
    data->open(run_->checked().core.run.seed_order);
    if (auto* text = static_cast<TokenizedText*>(data->query(TokenizedText::kId))) {
      if (auto* file = static_cast<TokenizerFile*>(text->tokenizer().query(TokenizerFile::kId)))
        tokenizer_ = {{std::string(file->name()), file->text()}};
    }
    const DataInfo& info = data->info();
    return model.guarded(*names)->name_plan(info);
  }
  NamePlan plan_of_folder() {
    auto* names = static_cast<ModelNames*>(folder_->query(ModelNames::kId));
    if (names == nullptr) return {};
    const Value* context = folder_->description().model.find("context");
    if (context == nullptr)
      fail_config(fmt::format(
          "tenon export: {}/{}: [model] has no 'context', the longest sample, which files for other programs "
          "state; add `context = N` there, or export with --own-names",
          folder_->folder(), models::kModelFile));
    DataInfo data;
    data.fields = {{"tokens", DType::kI32, {context->integer()}},
                   {"targets", DType::kI32, {context->integer()}}};
    data.attributes = folder_->description().attributes;
    return names->name_plan(data);
  }

  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<TrainedRun> run_;  ///< null for a folder
  std::vector<ExportedFile> tokenizer_;
  std::unique_ptr<models::StoredRun> checkpoint_;
  std::optional<Runtime> runtime_;  ///< of a folder, as are those below
  OfflineHost host_;
  std::unique_ptr<models::StoredModelPaths> paths_;
  std::unique_ptr<models::ModelFolder> folder_;
};

/// A tensor to write.
struct PlacedTensor {
  SafetensorsEntry entry;
  const NameGroup* group;
  std::size_t target;
};

/// A file and its tensors, in their order in it.
struct WeightsFile {
  std::string name;
  std::vector<PlacedTensor> tensors;
};

/// Files of at most `most` bytes of data each, but for a tensor that is larger alone; one file without a
/// limit.
std::vector<WeightsFile> files_of(std::span<const NameGroup> groups, std::optional<DType> dtype,
                                  std::optional<std::int64_t> most) {
  std::vector<PlacedTensor> all;
  for (const NameGroup& group : groups) {
    const DType to = exported_type(group, dtype);
    for (std::size_t i = 0; i < group.there.size(); ++i)
      all.push_back({safetensors_entry(group.there[i].name, to, group.there[i].shape), &group, i});
  }
  std::ranges::sort(all, {}, [](const PlacedTensor& output) { return std::string_view(output.entry.name); });
  std::vector<WeightsFile> files(1);
  std::int64_t bytes = 0;
  for (PlacedTensor& output : all) {
    if (most && bytes > 0 && output.entry.bytes() > *most - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += output.entry.bytes();
    files.back().tensors.push_back(std::move(output));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1 ? std::string(kWeightsFile)
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    std::ranges::sort(files[i].tensors, [](const PlacedTensor& a, const PlacedTensor& b) {
      return safetensors_before(a.entry, b.entry);
    });
  }
  return files;
}

/// Places each tensor in its file, as transformers reads it.
std::string index_json(std::span<const WeightsFile> files) {
  std::int64_t bytes = 0;
  std::vector<std::pair<std::string_view, std::string_view>> places;
  for (const WeightsFile& file : files)
    for (const PlacedTensor& output : file.tensors) {
      bytes += output.entry.bytes();
      places.emplace_back(output.entry.name, file.name);
    }
  std::ranges::sort(places);
  JsonWriter json;
  json.begin_object();
  json.begin_object("metadata");
  json.member("total_size", bytes);
  json.end_object();
  json.begin_object("weight_map");
  for (const auto& [tensor, file] : places) json.member(tensor, file);
  json.end_object();
  json.end_object();
  return json.take();
}

/// Files of one export. They get their names when all are written.
class WeightsWriting {
 public:
  explicit WeightsWriting(FileSystem& files) : files_(files) {}
  WeightsWriting(const WeightsWriting&) = delete;
  ~WeightsWriting() {
    for (const std::string& path : paths_) {
      try {
        remove_tree(files_, path + ".tmp");
      } catch (const std::exception&) {  // left for the reader of the error that led here
      }
    }
  }

  void add(const std::string& path, WeightsFile& weights, const ReadRows& read) {
    paths_.push_back(path);
    const auto file = files_.create(path + ".tmp");
    std::vector<SafetensorsEntry> entries;
    for (const PlacedTensor& output : weights.tensors) entries.push_back(output.entry);
    const std::string beginning = safetensors_beginning(entries, {{"format", "pt"}});
    file->append(std::as_bytes(std::span(beginning)));
    for (const PlacedTensor& output : weights.tensors)
      translate(*output.group, Direction::kExport, output.target, *output.entry.dtype, read,
                [&](TensorView piece) { file->append(piece.raw()); });
    file->sync();
    file->close();
  }
  void finish(const std::string& folder) {
    for (const std::string& path : paths_) files_.rename(path + ".tmp", path);
    paths_.clear();
    files_.sync_directory(folder);
  }

 private:
  FileSystem& files_;
  std::vector<std::string> paths_;
};

/// Whether transformers would read a file of this name as weights of the model.
bool is_weights_name(std::string_view name) {
  return name == kIndexFile || (name.starts_with("model") && name.ends_with(".safetensors"));
}

void refuse_existing(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return;
  fail_config(fmt::format("tenon export: {} exists; choose another --out, or add --overwrite", path));
}

/// Refuses other weights in the folder of shards than those that will be written: readers would mix them.
void refuse_others(FileSystem& files, const std::string& folder, const std::vector<std::string>& names) {
  if (!files.exists(folder)) return;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (!is_weights_name(entry.name) || std::ranges::count(names, entry.name) > 0) continue;
    fail_config(
        fmt::format("tenon export: {}/{} is of another export, and programs would read both; remove it, or "
                    "choose another --out",
                    folder, entry.name));
  }
}

void declare_export(po::options_description& options) {
  options.add_options()("out", po::value<std::string>(),
                        "PATH  safetensors file to write; with --max-shard the folder of the files");
  options.add_options()(
      "max-shard", po::value<std::string>(),
      "SIZE  write files of at most SIZE (512MiB, 5GB) with an index, into the folder --out");
  options.add_options()("dtype", po::value<std::string>(), "f32|bf16  of the weights; absent: as trained");
  options.add_options()("step", po::value<std::int64_t>(),
                        "N  checkpoint of slot N instead of the newest valid one");
  options.add_options()("own-names", "keep the names of this program, and write no files beside the weights");
  options.add_options()("overwrite", "replace files that exist");
  options.add_options()("json", "print what was written as JSON");
}

int export_model(const po::variables_map& values) {
  const std::string out = values["out"].as<std::string>();
  const std::optional<DType> dtype = asked_dtype(values);
  std::optional<std::int64_t> most, step;
  if (values.count("max-shard") > 0) most = asked_bytes(values["max-shard"].as<std::string>());
  if (values.count("step") > 0) step = values["step"].as<std::int64_t>();
  const std::string folder = most ? out : parent_path(out);
  const bool overwrite = values.count("overwrite") > 0;

  Source source(values["run"].as<std::vector<std::string>>()[0]);
  NamePlan plan;
  if (values.count("own-names") == 0) plan = source.plan();
  const std::string edits = plan.files.empty() ? "" : source.edits();
  std::string left_out;
  if (!edits.empty()) {
    for (const ExportedFile& file : plan.files) left_out += (left_out.empty() ? "" : ", ") + file.name;
    plan.files.clear();
  }
  std::vector<ExportedFile> beside = plan.files;
  beside.insert(beside.end(), source.tokenizer().begin(), source.tokenizer().end());
  if (!overwrite) {
    if (!most) refuse_existing(source.files(), out);
    for (const ExportedFile& file : beside) refuse_existing(source.files(), folder + "/" + file.name);
  }
  StoredModel& model = source.open(step);
  const std::vector<NameGroup> groups = name_groups(plan, model.parameters(), std::string(model.folder()));
  std::vector<WeightsFile> weights = files_of(groups, dtype, most);
  if (most) {
    std::vector<std::string> names;
    for (const WeightsFile& file : weights) names.push_back(file.name);
    if (weights.size() > 1) {
      beside.push_back({kIndexFile, index_json(weights)});
      names.emplace_back(kIndexFile);
    }
    for (const std::string& name : names)
      if (!overwrite) refuse_existing(source.files(), folder + "/" + name);
    refuse_others(source.files(), folder, names);
  }
  const std::string hash = source.hash();
  std::int64_t elements = 0, tensors = 0;
  for (const StoredTensor& tensor : model.parameters()) elements += tensor.shape.elements();
  source.files().make_directories(folder);
  {
    WeightsWriting writing(source.files());
    const ReadRows read = rows_of(model);
    for (WeightsFile& file : weights) {
      writing.add(most ? folder + "/" + file.name : out, file, read);
      tensors += static_cast<std::int64_t>(file.tensors.size());
    }
    writing.finish(folder);
  }
  for (const ExportedFile& file : beside)
    source.files().write_text_atomically(folder + "/" + file.name, file.text);

  if (values.count("json") == 0) {
    const std::string place = model.step() < 0 ? "of" : fmt::format("step {} of", model.step());
    std::cout << fmt::format("{}: {} tensors, {} elements, {} {}{}, weights hash {}\n", out, tensors,
                             elements, place, model.folder(), source.whose(), hash);
    if (most)
      for (const WeightsFile& file : weights) std::cout << folder << "/" << file.name << "\n";
    for (const ExportedFile& file : beside) std::cout << folder << "/" << file.name << "\n";
    if (!left_out.empty()) std::cout << fmt::format("without {}: {}\n", left_out, edits);
    return 0;
  }
  JsonWriter json;
  json.begin_object();
  json.member("file", out);
  json.member("run", model.folder());
  if (model.step() >= 0) json.member("step", model.step());
  json.member("tensors", tensors);
  json.member("elements", elements);
  json.member("weights_hash", hash);
  if (most) {
    json.objects("shards", weights, [&](const WeightsFile& file) {
      json.member("file", folder + "/" + file.name);
      json.member("tensors", static_cast<std::int64_t>(file.tensors.size()));
    });
  }
  json.begin_object("beside");
  for (const ExportedFile& file : beside) json.member(file.name, folder + "/" + file.name);
  json.end_object();
  if (!left_out.empty()) json.member("without", left_out + ": " + edits);
  json.end_object();
  std::cout << json.take();
  return 0;
}

int run_export(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kExport, {"run"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("run") == 0 || parsed.values.count("out") == 0)
    fail_config("tenon export: usage: tenon export RUN --out PATH [options]");
  return export_model(parsed.values);
}

}  // namespace

const Command kExport{"export", "RUN --out PATH [options]",
                      "Write the weights of a run or a model folder under their conventional names.",
                      run_export, declare_export};

}  // namespace tenon::cli
