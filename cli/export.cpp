// tenon export: the weights of a run's checkpoint under the names that other programs use.
#include "command_line.hpp"
#include "export_weights.hpp"
#include "trained_run.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/model.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

namespace tenon::cli {
namespace {

std::optional<DType> asked_dtype(const po::variables_map& values) {
  if (values.count("dtype") == 0) return std::nullopt;
  const auto& name = values["dtype"].as<std::string>();
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  fail_config(fmt::format("tenon export: --dtype is '{}', expected f32 or bf16", name));
}

/// The export plan of the model's plugin; empty if the model offers none.
ExportPlan plan_of(TrainedRun& run) {
  const train::NamedComponent<Model> model = run.make<Model>("model");
  auto* names = static_cast<ModelExport*>(model->query(ModelExport::kId));
  if (names == nullptr) return {};
  const train::NamedComponent<Dataset> data = run.make<Dataset>("data");
  data->open(run.checked().core.run.seed_order);
  const DataInfo& info = data->info();
  return model.guarded(*names)->export_plan(info);
}

/// Why nothing but weights can be written: a graph that [model] edits is not the one that the model's plugin
/// describes to other programs. "" where it is that one.
std::string edits_of(TrainedRun& run) {
  std::vector<std::string> edits;
  for (const Member& member : run.checked().model_edits.table())
    edits.push_back("[[model." + member.key + "]]");
  if (edits.empty()) return "";
  return fmt::format("the graph was edited ({}), so it may no longer be one that those files describe",
                     fmt::join(edits, ", "));
}

void refuse_existing(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return;
  fail_config(fmt::format("tenon export: {} exists; choose another --out, or add --overwrite", path));
}

void write_weights(FileSystem& files, const std::string& path, const ExportedWeights& weights) {
  const std::string partial = path + ".tmp";
  try {
    const auto file = files.create(partial);
    write_safetensors(*file, weights.items, {{"format", "pt"}});
    file->sync();
    file->close();
    files.rename(partial, path);
  } catch (...) {
    remove_tree(files, partial);
    throw;
  }
  files.sync_directory(parent_path(path));
}

/// Replicas that train alone and are not averaged at this slot are no single model.
std::string whose_text(const std::vector<train::StoredWeights>& weights) {
  if (weights.size() == 1 || !weights.front().own()) return "";
  return fmt::format(", replica 0 of {}", weights.size());
}

void declare_export(po::options_description& options) {
  options.add_options()("out", po::value<std::string>(), "FILE  safetensors file to write");
  options.add_options()("dtype", po::value<std::string>(), "f32|bf16  of the weights; absent: as trained");
  options.add_options()("step", po::value<std::int64_t>(),
                        "N  checkpoint of slot N instead of the newest valid one");
  options.add_options()("overwrite", "replace files that exist");
  options.add_options()("json", "print what was written as JSON");
}

int run_export(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kExport, {"run"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("run") == 0 || parsed.values.count("out") == 0)
    fail_config("tenon export: usage: tenon export RUN --out FILE.safetensors [options]");
  const std::string out = parsed.values["out"].as<std::string>();
  const std::optional<DType> dtype = asked_dtype(parsed.values);

  TrainedRun trained("export", parsed.values["run"].as<std::vector<std::string>>()[0]);
  ExportPlan plan = plan_of(trained);
  const std::string edits = plan.files.empty() ? "" : edits_of(trained);
  std::string left_out;
  if (!edits.empty()) {
    for (const ExportedFile& file : plan.files) left_out += (left_out.empty() ? "" : ", ") + file.name;
    plan.files.clear();
  }
  const std::string folder = parent_path(out);
  if (parsed.values.count("overwrite") == 0) {
    refuse_existing(trained.files(), out);
    for (const ExportedFile& file : plan.files) refuse_existing(trained.files(), folder + "/" + file.name);
  }
  std::optional<std::int64_t> step;
  if (parsed.values.count("step") > 0) step = parsed.values["step"].as<std::int64_t>();
  const auto stored = trained.open(step);
  const ExportedWeights weights = read_weights(stored->checkpoint(), stored->weights().front(), plan, dtype);
  trained.files().make_directories(folder);
  write_weights(trained.files(), out, weights);
  for (const ExportedFile& file : plan.files)
    trained.files().write_text_atomically(folder + "/" + file.name, file.text);

  if (parsed.values.count("json") == 0) {
    std::cout << fmt::format("{}: {} tensors, {} elements, step {} of {}{}, weights hash {}\n", out,
                             weights.items.size(), weights.elements, stored->step(), trained.folder(),
                             whose_text(stored->weights()), weights.hash);
    for (const ExportedFile& file : plan.files) std::cout << folder << "/" << file.name << "\n";
    if (!left_out.empty()) std::cout << fmt::format("without {}: {}\n", left_out, edits);
    return 0;
  }
  JsonWriter json;
  json.begin_object();
  json.member("file", out);
  json.member("run", trained.folder());
  json.member("step", stored->step());
  json.member("tensors", static_cast<std::int64_t>(weights.items.size()));
  json.member("elements", weights.elements);
  json.member("weights_hash", weights.hash);
  json.begin_object("beside");
  for (const ExportedFile& file : plan.files) json.member(file.name, folder + "/" + file.name);
  json.end_object();
  if (!left_out.empty()) json.member("without", left_out + ": " + edits);
  json.end_object();
  std::cout << json.take();
  return 0;
}

}  // namespace

const Command kExport{"export", "RUN --out FILE.safetensors [options]",
                      "Write a run's weights under their conventional names.", run_export, declare_export};

}  // namespace tenon::cli
