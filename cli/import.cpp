// tenon import: a folder of Hugging Face as a model folder. The importers of the registry say which model its
// settings mean, and that model's names say which tensors its parameters are.
#include "built_model.hpp"
#include "checkpoint_folder.hpp"
#include "command_line.hpp"
#include "export_weights.hpp"
#include "offline_host.hpp"

#include "base/json_writer.hpp"
#include "models/model_folder.hpp"
#include "models/stored_models.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>

namespace tenon::cli {
namespace {

/// An importer without options, and the architecture that it is to read.
struct ChosenImporter {
  std::unique_ptr<ResolvedOptions> options;
  train::NamedComponent<ModelImporter> importer;
  std::string id, architecture;
};

/// A parameter's place among the rules.
struct ParameterPlace {
  const NameGroup* group;
  std::size_t index;
};

/// Folder, model and rules, checked against each other. Nothing is written before write().
class Import {
 public:
  Import(Runtime& runtime, const std::string& folder, const std::string& type)
      : registry_(runtime.registry()),
        files_(make_posix_files()),
        paths_("tenon import", *files_, registry_, host_),
        source_(*files_, folder) {
    host_.set_stored_models(&paths_);
    choose(type);
    description_ = chosen_.importer->model(chosen_.architecture, source_.settings());
    const Value* model = description_.model.find("type");
    if (model == nullptr || !model->is_text())
      fail_plugin(fmt::format("importer {} describes a model without a type", chosen_.id));
    models::Blueprint blueprint(description_.model, registry_, host_);
    DataInfo data;
    data.fields = {{"tokens", DType::kI32, {1}}, {"targets", DType::kI32, {1}}};
    data.attributes = description_.attributes;
    parameters_ = model_parameters(registry_, host_, blueprint.graph(data, {}), data);
    auto* names = static_cast<ModelNames*>(blueprint.query(ModelNames::kId));
    if (names == nullptr)
      fail_plugin(fmt::format("importer {} describes model {}, which does not offer {}", chosen_.id,
                              model->text(), ModelNames::kId));
    plan_ = names->name_plan(data);
    groups_ = name_groups(plan_, parameters_, "model " + model->text());
    match();
  }
  Import(const Import&) = delete;

  FileSystem& files() { return *files_; }
  const CheckpointFolder& source() const { return source_; }
  const std::string& importer() const { return chosen_.id; }
  const Value& model() const { return description_.model; }
  const std::string& model_type() const { return description_.model.find("type")->text(); }
  std::size_t parameters() const { return parameters_.size(); }
  const std::vector<std::string>& left_out() const { return left_out_; }
  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const StoredTensor& tensor : parameters_) sum += tensor.shape.elements();
    return sum;
  }
  /// "F32", or "12 BF16 and 3 F32".
  std::string types() const {
    std::map<std::string_view, int> counts;
    for (const auto& [name, tensor] : source_.tensors()) ++counts[tensor.entry->file_dtype];
    if (counts.size() == 1) return std::string(counts.begin()->first);
    std::vector<std::string> texts;
    for (const auto& [type, count] : counts) texts.push_back(fmt::format("{} {}", count, type));
    return fmt::format("{}", fmt::join(texts, " and "));
  }

  /// Returns the digest of the model folder.
  std::string write(const std::string& folder) {
    const ComponentRef& ref = chosen_.importer.ref();
    models::MadeBy made_by{{"import", source_.folder()},
                           {"architecture", source_.architecture()},
                           {"importer", std::string(ref.name)},
                           {"plugin", fmt::format("{} {}", ref.plugin, ref.plugin_version)}};
    std::map<std::string_view, ParameterPlace> places;
    for (const NameGroup& group : groups_)
      for (std::size_t i = 0; i < group.here.size(); ++i) places[group.here[i].name] = {&group, i};
    models::ModelFolderWriter out(*files_, folder, {description_, parameters_}, std::move(made_by));
    const ReadRows read = [this](const StoredTensor& tensor, std::int64_t row, std::int64_t,
                                 std::span<std::byte> bytes) { source_.read(tensor.name, row, bytes); };
    for (const StoredTensor& parameter : parameters_) {
      const ParameterPlace& place = places.at(parameter.name);
      translate(*place.group, Direction::kImport, place.index, parameter.dtype, read,
                [&](TensorView piece) { out.write(piece); });
    }
    return out.finish();
  }

 private:
  /// The importer that knows the architecture, or the one of this name.
  void choose(const std::string& type) {
    std::vector<std::string> known;
    std::vector<ChosenImporter> found;
    for (const std::string& id : registry_.ids(ModelImporter::kKind)) {
      Value table;
      table.set("type", Value(id), {});
      ChosenImporter one;
      one.id = id;
      one.options =
          resolve_options(component_request(table, registry_.describe(ModelImporter::kKind, id), &registry_))
              .options;
      one.importer = registry_.create<ModelImporter>(id, *one.options, host_);
      const std::vector<std::string> architectures = one.importer->architectures();
      const bool knows = std::ranges::count(architectures, source_.architecture()) > 0;
      one.architecture = knows || architectures.empty() ? source_.architecture() : architectures.front();
      for (const std::string& name : architectures) known.push_back(fmt::format("{} ({})", name, id));
      if (type.empty() ? knows : id == type) found.push_back(std::move(one));
    }
    if (found.size() == 1) {
      chosen_ = std::move(found.front());
      return;
    }
    if (!type.empty())
      fail_config(fmt::format("tenon import: --model is '{}', and no importer is; there are {}", type,
                              fmt::join(registry_.ids(ModelImporter::kKind), ", ")));
    if (found.empty())
      fail_config(fmt::format(
          "{}/config.json: no importer knows architecture {}; known: {}. --model TYPE reads it as the first "
          "architecture of an importer",
          source_.folder(), source_.architecture(), fmt::join(known, ", ")));
    std::vector<std::string_view> ids;
    for (const ChosenImporter& one : found) ids.push_back(one.id);
    fail_config(fmt::format("tenon import: {} importers know architecture {}: {}; choose one with --model",
                            found.size(), source_.architecture(), fmt::join(ids, ", ")));
  }

  /// Finds the tensor of every name, with its type. Throws one error with every difference.
  void match() {
    std::vector<std::string> problems;
    std::set<std::string_view> used;
    for (NameGroup& group : groups_) {
      for (const StoredTensor& tensor : group.here)
        if (tensor.dtype != DType::kF32)
          problems.push_back(fmt::format("parameter '{}' is {}; only f32 can be imported", tensor.name,
                                         dtype_name(tensor.dtype)));
      for (StoredTensor& tensor : group.there) {
        used.insert(tensor.name);
        const auto found = source_.tensors().find(tensor.name);
        if (found == source_.tensors().end()) {
          problems.push_back(fmt::format("missing: '{}' {}", tensor.name, tensor.shape.text()));
          continue;
        }
        const SafetensorsEntry& entry = *found->second.entry;
        const std::string type = entry.file_dtype;
        if (type != "F32" && type != "BF16" && type != "F16")
          problems.push_back(fmt::format("'{}' is {}; expected F32, BF16 or F16, which f32 holds exactly",
                                         tensor.name, type));
        if (!std::ranges::equal(entry.shape, tensor.shape.extents()))
          problems.push_back(fmt::format("'{}' has shape [{}]; expected {}", tensor.name,
                                         fmt::join(entry.shape, ", "), tensor.shape.text()));
        tensor.dtype = entry.dtype.value_or(DType::kF32);
      }
    }
    for (const auto& [name, tensor] : source_.tensors()) {
      if (used.contains(name)) continue;
      if (is_derived(plan_, name))
        left_out_.push_back(name);
      else
        problems.push_back(fmt::format("unknown: '{}' [{}]", name, fmt::join(tensor.entry->shape, ", ")));
    }
    if (problems.empty()) return;
    fail_config(
        fmt::format("{}: the tensors are not those of {}, as model {} with the settings of config.json:\n"
                    "  {}",
                    source_.folder(), chosen_.architecture, model_type(), fmt::join(problems, "\n  ")));
  }

  Registry& registry_;
  std::unique_ptr<FileSystem> files_;
  OfflineHost host_;
  models::StoredModelPaths paths_;
  CheckpointFolder source_;
  ChosenImporter chosen_;
  ModelDescription description_;
  std::vector<StoredTensor> parameters_;  ///< by name ascending
  NamePlan plan_;
  std::vector<NameGroup> groups_;
  std::vector<std::string> left_out_;
};

void print_found(const Import& import) {
  const CheckpointFolder& source = import.source();
  std::cout << fmt::format("{}: {}, {} tensors in {} {}, {}\n", source.folder(), source.architecture(),
                           source.tensors().size(), source.files(), source.files() == 1 ? "file" : "files",
                           import.types());
  if (!import.left_out().empty())
    std::cout << fmt::format("left out, since they follow from others: {}\n",
                             fmt::join(import.left_out(), ", "));
  std::cout << fmt::format("{}\n", to_toml(import.model(), false));
  std::cout << fmt::format("{} parameters, {} elements in f32\n", import.parameters(), import.elements())
            << std::flush;
}

void print_import_json(const Import& import, const std::string& folder, const std::string& digest) {
  const CheckpointFolder& source = import.source();
  JsonWriter json;
  json.begin_object();
  json.member("source", source.folder());
  json.member("architecture", source.architecture());
  json.member("importer", import.importer());
  json.member("model", import.model_type());
  json.member("files", static_cast<std::int64_t>(source.files()));
  json.member("tensors", static_cast<std::int64_t>(source.tensors().size()));
  json.member("types", import.types());
  json.member("left_out", fmt::format("{}", fmt::join(import.left_out(), ", ")));
  json.member("parameters", static_cast<std::int64_t>(import.parameters()));
  json.member("elements", import.elements());
  if (!folder.empty()) {
    json.member("folder", folder);
    json.member("weights_hash", digest);
  }
  json.end_object();
  std::cout << json.take();
}

void declare_import(po::options_description& options) {
  options.add_options()("output,o", po::value<std::string>(),
                        "FOLDER  model folder to write, which must be new; absent: only checks");
  options.add_options()("model", po::value<std::string>(),
                        "TYPE  importer that reads config.json; absent: the one that knows the architecture");
  options.add_options()("json", "print what was found and written as JSON");
}

int run_import(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kImport, {"folder"}, arguments);
  if (parsed.helped) return 0;
  const po::variables_map& values = parsed.values;
  if (values.count("folder") == 0)
    fail_config("tenon import: which FOLDER? usage: tenon import FOLDER [-o MODEL_FOLDER] [options]");
  std::string folder = values["folder"].as<std::vector<std::string>>()[0];
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::string out, type;
  if (values.count("output") > 0) {
    out = values["output"].as<std::string>();
    while (out.size() > 1 && out.ends_with('/')) out.pop_back();
    if (out.empty()) fail_config("tenon import: --output is empty; name a new folder");
    if (make_posix_files()->exists(out))
      fail_config(
          fmt::format("tenon import: {} exists, and nothing is written over; name another folder", out));
  }
  if (values.count("model") > 0) type = values["model"].as<std::string>();
  const bool json = values.count("json") > 0;
  Runtime runtime;
  runtime.discover({});
  try {
    Import import(runtime, folder, type);
    if (!json) print_found(import);
    std::string digest;
    if (!out.empty()) digest = import.write(out);
    if (json)
      print_import_json(import, out, digest);
    else if (out.empty())
      std::cout << "nothing is written: name a new folder with -o\n";
    else
      std::cout << fmt::format("weights_hash {}  ->  {}\n", digest, out);
  } catch (...) {
    rethrow_noted_call();  // while the registry lives, which has the names
  }
  return 0;
}

}  // namespace

const Command kImport{
    "import", "FOLDER [-o MODEL_FOLDER] [options]",
    "Make a model folder from a folder of Hugging Face: Llama, Phi-3, Nemotron-H, Mamba-2, GPT-Neo.",
    run_import, declare_import};

}  // namespace tenon::cli
