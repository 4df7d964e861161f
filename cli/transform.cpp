// tenon transform: stored models in, a model folder out, by a component of kind transform.
#include "transform.hpp"

#include "command_line.hpp"
#include "offline_host.hpp"
#include "transform/plan.hpp"
#include "transform_costs.hpp"

#include "base/json_writer.hpp"
#include "loop/named_component.hpp"
#include "models/model_folder.hpp"
#include "models/stored_models.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/transform.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <thread>
#include <utility>

namespace tenon::cli {
namespace {

/// "4.25 MiB"; whole bytes below a KiB.
std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fmt::format("{:.4g} {}", size, kUnits[unit]);
}

/// Sources, transform and description of a plan. Nothing is written before write().
class Work {
 public:
  Work(Registry& registry, transform::Plan plan)
      : plan_(std::move(plan)),
        files_(make_posix_files()),
        registry_(registry),
        models_("[transform] from", *files_, registry, host_),
        layers_(make_registry_layers(registry, host_)) {
    transform::require_new(plan_);
    host_.set_stored_models(&models_);
    host_.set_layers(layers_.get());
    host_.set_device([this] { return &device(); });
    registry.create_inner(*plan_.options, host_);
    transform_ = registry.create<Transform>(plan_.type, *plan_.options, host_);
    for (const transform::Source& source : plan_.sources) {
      sources_.push_back(models_.open(source.folder, source.step));
      pointers_.push_back(sources_.back().get());
    }
    result_ = transform_->describe(pointers_);
    check_result();
  }
  Work(const Work&) = delete;

  const transform::Plan& plan() const { return plan_; }
  Registry& registry() const { return registry_; }
  std::span<StoredModel* const> sources() const { return pointers_; }
  const TransformedModel& result() const { return result_; }
  std::string model_type() const { return result_.description.model.find("type")->text(); }
  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const StoredTensor& tensor : result_.parameters) sum += tensor.shape.elements();
    return sum;
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const StoredTensor& tensor : result_.parameters)
      sum += dtype_bytes(tensor.dtype, tensor.shape.elements());
    return sum;
  }

  /// Returns the digest of the result.
  std::string write() {
    models::MadeBy made_by{
        {"transform", std::string(transform_.ref().name)},
        {"plugin", fmt::format("{} {}", transform_.ref().plugin, transform_.ref().plugin_version)}};
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      const StoredModel& source = *pointers_[i];
      made_by.emplace_back(fmt::format("source{}", i), source.folder());
      if (source.step() >= 0)
        made_by.emplace_back(fmt::format("source{}_step", i), std::to_string(source.step()));
      made_by.emplace_back(fmt::format("source{}_digest", i), source.digest());
    }
    models::ModelFolderWriter out(*files_, plan_.to, result_, std::move(made_by));
    transform_->run(pointers_, out);
    return out.finish();
  }

 private:
  /// The author's mistakes that a folder could not hold.
  void check_result() const {
    const Value* type = result_.description.model.find("type");
    if (type == nullptr || !type->is_text())
      fail_plugin(fmt::format("transform {} describes a model without a type", plan_.type));
    if (result_.parameters.empty())
      fail_plugin(fmt::format("transform {} describes a model without parameters", plan_.type));
    for (std::size_t i = 1; i < result_.parameters.size(); ++i) {
      const std::string &before = result_.parameters[i - 1].name, &name = result_.parameters[i].name;
      if (before >= name)
        fail_plugin(fmt::format("transform {} lists parameter '{}' after '{}'; expected names that ascend",
                                plan_.type, name, before));
    }
  }

  /// The processor with all its cores, for transforms that run a model and name no device.
  Device& device() {
    if (!device_) {
      Value table;
      table.set("type", Value(std::string("cpu")), {});
      device_options_ =
          resolve_options(component_request(table, registry_.describe(Device::kKind, "cpu"), &registry_))
              .options;
      device_ = registry_.create<Device>("cpu", *device_options_, host_);
      device_->open({0, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), "auto"});
    }
    return *device_;
  }

  transform::Plan plan_;
  std::unique_ptr<FileSystem> files_;
  OfflineHost host_;
  Registry& registry_;
  models::StoredModelPaths models_;
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<ResolvedOptions> device_options_;
  train::NamedComponent<Device> device_;
  train::NamedComponent<Transform> transform_;
  std::vector<std::unique_ptr<StoredModel>> sources_;
  std::vector<StoredModel*> pointers_;
  TransformedModel result_;
};

std::string source_text(const StoredModel& source) {
  return source.step() < 0 ? std::string(source.folder())
                           : fmt::format("{}, checkpoint of step {}", source.folder(), source.step());
}

void print_plan(const Work& work) {
  for (const StoredModel* source : work.sources())
    std::cout << fmt::format("from {}\n", source_text(*source));
  std::map<std::string_view, int> by_type;
  for (const StoredTensor& tensor : work.result().parameters) ++by_type[dtype_name(tensor.dtype)];
  std::vector<std::string> counts;
  for (const auto& [name, count] : by_type) counts.push_back(fmt::format("{} {}", count, name));
  std::cout << fmt::format("{}: model {}, {} tensors, {} elements, {}\n", work.plan().type, work.model_type(),
                           fmt::join(counts, " and "), work.elements(), size_text(work.bytes()))
            << std::flush;
}

void print_json(const Work& work, const std::string& digest) {
  JsonWriter json;
  json.begin_object();
  json.member("transform", work.plan().type);
  json.objects("sources", work.sources(), [&](const StoredModel* source) {
    json.member("folder", source->folder());
    if (source->step() >= 0) json.member("step", source->step());
    json.member("digest", source->digest());
  });
  json.member("model", work.model_type());
  json.member("tensors", static_cast<std::int64_t>(work.result().parameters.size()));
  json.member("elements", work.elements());
  json.member("bytes", work.bytes());
  json.member("folder", work.plan().to);
  json.member("weights_hash", digest);
  json.end_object();
  std::cout << json.take();
}

/// Costs of the first source and of the result, for sequences of `context` tokens.
struct Comparison {
  ModelCosts before, after;
  Comparison(const Work& work, std::optional<std::int64_t> context)
      : before(costs_of(work.registry(), work.sources()[0]->description(), work.sources()[0]->parameters(),
                        context)),
        after(costs_of(work.registry(), work.result().description, work.result().parameters, context)) {}
};

void print_comparison(const Work& work, const Comparison& costs, bool json) {
  if (!json) {
    std::cout << costs_text(costs.before, costs.after);
    return;
  }
  JsonWriter writer;
  writer.begin_object();
  writer.member("transform", work.plan().type);
  writer.member("model", work.model_type());
  writer.member("written", false);
  for (const bool after : {false, true}) {
    writer.begin_object(after ? "after" : "before");
    add_costs(writer, after ? costs.after : costs.before);
    writer.end_object();
  }
  writer.end_object();
  std::cout << writer.take();
}

/// Gives errors of the component its names, while the registry that has them lives.
template <typename Use>
void with_names(Use&& use) {
  try {
    use();
  } catch (...) {
    rethrow_noted_call();
  }
}

Work plan_work(Runtime& runtime, const Config& config, const std::string& path, const std::string& to) {
  runtime.discover(config::plugin_paths(config));
  transform::Plan plan = transform::read_plan(config, runtime.registry(), path, to);
  for (const std::string& warning : plan.warnings) std::cerr << "tenon transform: " << warning << "\n";
  return Work(runtime.registry(), std::move(plan));
}

void declare_transform(po::options_description& options) {
  options.add_options()("output,o", po::value<std::string>(),
                        "FOLDER  of the result, which must be new; instead of `to` in CONFIG");
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set transform.step=[200] (repeatable)");
  options.add_options()("dry-run", "write nothing; print parameters, bytes and FLOPs before and after");
  options.add_options()("context", po::value<std::int64_t>(),
                        "N  tokens of the sequence that --dry-run counts for; the model's unless given");
  options.add_options()("json", "print the result as JSON");
}

std::optional<std::int64_t> context_of(const Parsed& parsed, bool dry) {
  if (parsed.values.count("context") == 0) return std::nullopt;
  if (!dry) fail_config("tenon transform: --context is for --dry-run alone; leave it out, or add --dry-run");
  const std::int64_t context = parsed.values["context"].as<std::int64_t>();
  if (context < 1) fail_config(fmt::format("tenon transform: --context is {}; expected at least 1", context));
  return context;
}

int run_transform(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kTransform, {"config"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config("tenon transform: which CONFIG? usage: tenon transform CONFIG [options]");
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const std::string path = parsed.values["config"].as<std::vector<std::string>>()[0];
  std::string to;
  if (parsed.values.count("output") > 0) {
    to = parsed.values["output"].as<std::string>();
    if (to.empty()) fail_config("tenon transform: --output is empty; name a new folder");
  }
  Runtime runtime;
  const bool json = parsed.values.count("json") > 0, dry = parsed.values.count("dry-run") > 0;
  const std::optional<std::int64_t> context = context_of(parsed, dry);
  with_names([&] {
    Work work = plan_work(runtime, Config::load(path, sets), path, to);
    if (!json) print_plan(work);
    if (dry) {
      print_comparison(work, Comparison(work, context), json);
      return;
    }
    const std::string digest = work.write();
    if (json)
      print_json(work, digest);
    else
      std::cout << fmt::format("weights_hash {}  ->  {}\n", digest, work.plan().to);
  });
  return 0;
}

}  // namespace

std::string make_model(Runtime& runtime, const Config& config, const std::string& to) {
  std::string digest;
  with_names([&] { digest = plan_work(runtime, config, to, to).write(); });
  return digest;
}

void check_transform(Runtime& runtime, const Config& config, const std::string& path) {
  with_names([&] {
    const Work work = plan_work(runtime, config, path, "");
    std::cout << path << ": ok\n";
    print_plan(work);
  });
}

const Command kTransform{"transform", "CONFIG [options]",
                         "Make a model folder from trained models: mixed, untied, in another type.",
                         run_transform, declare_transform};

}  // namespace tenon::cli
