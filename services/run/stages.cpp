// Stages by what they are: the key of a stage is a digest of its resolved configuration, in which the folders
// of other stages stand as the keys of those.
#include "run/stages.hpp"

#include "base/file_descriptor.hpp"
#include "config/layers.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"
#include "models/model_folder.hpp"
#include "record/run_files.hpp"
#include "record/run_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

namespace tenon::train {
namespace {

constexpr std::string_view kReference = "stage:";
constexpr std::size_t kKeyDigits = 20;
constexpr OptionSpec kStage[] = {
    option::text("name", nullptr).mandatory().doc_text("of the stage's folder, and for other stages"),
    option::texts("extends", "[]").doc_text("files laid over this one, in order"),
    option::texts("set", "[]").doc_text("values laid over them: \"optimizer.lr=3e-4\""),
    option::text("init", nullptr)
        .doc_text("stage whose weights it begins with, or \"draw\"; unless given, the stage before"),
    option::text("transform", nullptr)
        .doc_text(
            "component that makes a model of those of [transform] from; unless given, of the stage before"),
    option::text("model", nullptr)
        .doc_text("transform whose result says [model], in place of the file's: a search has found it"),
};

[[noreturn]] void fail_at(const Origin& origin, const std::string& what) {
  fail_config(origin.text() + ": " + what);
}

/// Errors of a stage's configuration say whose it is: a `set` has no place of its own.
template <typename Call>
auto at_stage(const Origin& origin, const std::string& name, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.kind() != ErrorKind::kConfig || what.find(origin.file + ":") != std::string::npos) throw;
    fail_at(origin, fmt::format("stage {}: {}", config::quoted(name), what));
  }
}

/// Calls visit(value) for all texts of a configuration.
template <typename Visit>
void for_each_text(Value& value, Visit&& visit) {
  if (value.is_table()) {
    for (Member& member : value.table()) for_each_text(member.value, visit);
  } else if (value.is_array()) {
    for (Value& element : value.array()) for_each_text(element, visit);
  } else if (value.is_text()) {
    visit(value);
  }
}

/// The stage of a text "stage:NAME"; -1 for other texts.
int stage_named(std::string_view text, const std::vector<Stage>& stages) {
  if (!text.starts_with(kReference)) return -1;
  const auto found = std::ranges::find(stages, text.substr(kReference.size()), &Stage::name);
  return found == stages.end() ? -1 : static_cast<int>(found - stages.begin());
}

Value with_origin(Value value, const Origin& origin) {
  value.origin = origin;
  return value;
}

/// Lays the files and values of a stage over the file, and last what [at.NAME] has.
Config laid_over(const Config& file, const Options& options, const Origin& origin) {
  config::LayerStack stack;
  if (options.has("transform")) {
    for (const char* const table : {"plugins", "transform"})
      if (const Member* const member = file.root().find_member(table))
        stack.root.set(table, member->value, member->origin);
    if (stack.root.find("transform") == nullptr)
      stack.root.set("transform", with_origin(Value(), origin), origin);
    stack.root.find("transform")
        ->set("type", with_origin(Value(std::string(options.text("transform"))), origin), origin);
  } else {
    stack.root = file.root();
    for (const char* const table : {"stage", "at", "transform"}) stack.root.erase(table);
    if (options.has("model")) stack.root.erase("model");  // what is left is laid over the one that is found
  }
  for (const std::string_view path : options.texts("extends"))
    stack.add_file(resolve_path(std::string(path), origin));
  std::vector<std::string> sets;
  for (const std::string_view set : options.texts("set")) sets.emplace_back(set);
  stack.add_sets(sets);
  const Value* const at = file.find("at");
  if (const Value* const own = at == nullptr ? nullptr : at->find(options.text("name")))
    config::merge_tables(stack.root, Value(*own), "", stack.dropped);
  return file.with_root(std::move(stack.root));
}

/// [at.NAME] must name a stage.
void check_names(const Config& file, const std::vector<std::string>& names) {
  const Value* const at = file.find("at");
  if (at == nullptr) return;
  if (!at->is_table()) fail_at(at->origin, fmt::format("expected [at.STAGE], found {}", at->description()));
  for (const Member& member : at->table()) {
    if (std::ranges::find(names, member.key) == names.end())
      fail_at(member.origin, fmt::format("[at.{}]: there is no stage of that name; the stages are {}",
                                         config::printable(member.key), fmt::join(names, ", ")));
    if (!member.value.is_table())
      fail_at(member.value.origin, fmt::format("expected a table [at.{}], found {}",
                                               config::printable(member.key), member.value.description()));
  }
}

/// Writes what the stage begins with into [init]; a table of the file's own wins.
void set_init(Stage& stage, const Options& options, int index, const std::vector<Stage>& earlier) {
  Value root = stage.config.root();
  std::string from = index == 0 ? "draw" : earlier.back().name;
  if (options.has("init")) from = options.text("init");
  Value* const init = root.find("init");
  if (from == "draw") {
    if (options.has("init") && init != nullptr) root.erase("init");
  } else if (init == nullptr || init->find("from") == nullptr) {
    if (init == nullptr) root.set("init", with_origin(Value(), stage.origin), stage.origin);
    root.find("init")->set("from", with_origin(Value(std::string(kReference) + from), stage.origin),
                           stage.origin);
  }
  stage.config = stage.config.with_root(std::move(root));
}

/// A transform makes its model of the stage before unless [transform] from says otherwise.
void set_source(Stage& stage, const Options& options, int index, const std::vector<Stage>& earlier) {
  if (options.has("init"))
    fail_at(stage.origin,
            fmt::format("stage {}: a transform begins with no weights of its own; name its sources "
                        "in [transform] from",
                        config::quoted(stage.name)));
  Value root = stage.config.root();
  Value& table = *root.find("transform");
  if (table.find("from") == nullptr) {
    if (index == 0)
      fail_at(stage.origin,
              fmt::format("stage {}: there is no stage before it; name the models in [transform] from",
                          config::quoted(stage.name)));
    Value from(Value::Array{with_origin(Value(std::string(kReference) + earlier.back().name), stage.origin)});
    table.set("from", with_origin(std::move(from), stage.origin), stage.origin);
  }
  stage.config = stage.config.with_root(std::move(root));
}

/// The transform whose result says what the model is.
void set_model(Stage& stage, const Config& file, const Options& options, const std::vector<Stage>& earlier) {
  if (!options.has("model")) return;
  const std::string name(options.text("model"));
  const auto found = std::ranges::find(earlier, name, &Stage::name);
  if (stage.transforms || found == earlier.end() || !found->transforms)
    fail_at(stage.origin,
            fmt::format("stage {}: model = {}: expected {}", config::quoted(stage.name), config::quoted(name),
                        stage.transforms ? "a stage that trains; a transform makes its own model"
                                         : "the name of an earlier stage that transforms"));
  stage.model_of = static_cast<int>(found - earlier.begin());
  if (const Value* const model = file.find("model")) stage.file_model = *model;
}

/// Finds which stages the texts of a stage name.
void find_needs(Stage& stage, int index, const std::vector<std::string>& names) {
  Value root = stage.config.root();
  for_each_text(root, [&](Value& text) {
    if (!text.text().starts_with(kReference)) return;
    const std::string name = text.text().substr(kReference.size());
    const auto found = std::ranges::find(names, name);
    const auto at = static_cast<int>(found - names.begin());
    if (found == names.end())
      fail_at(text.origin, fmt::format("there is no stage {}; the stages are {}", config::quoted(name),
                                       fmt::join(names, ", ")));
    if (at >= index)
      fail_at(text.origin, fmt::format("stage {} names stage {}, which {}; a stage may name those before it",
                                       config::quoted(stage.name), config::quoted(name),
                                       at == index ? "is itself" : "comes later"));
    stage.needs.push_back(at);
  });
  std::ranges::sort(stage.needs);
  stage.needs.erase(std::unique(stage.needs.begin(), stage.needs.end()), stage.needs.end());
}

/// Finds out whether a stage only begins with another one.
void find_use(Stage& stage, const std::vector<Stage>& earlier) {
  if (const Value* const from = stage.config.find("init.from"); from != nullptr && from->is_text())
    stage.begins_with = stage_named(from->text(), earlier);
  Value root = stage.config.root();
  if (stage.begins_with >= 0) root.find("init")->erase("from");
  for_each_text(root,
                [&](const Value& text) { stage.reads_others |= stage_named(text.text(), earlier) >= 0; });
}

bool is_folder_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

/// One process at a time trains a stage that several share; others wait for it.
class StageLock {
 public:
  explicit StageLock(const std::string& path, double deadline_s)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_.get() < 0) fail_run(fmt::format("cannot write {}", path));
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() > until)
        fail_run(fmt::format("{} is held by another run, which trains this stage, for more than {:.0f} h",
                             path, deadline_s / 3600));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

 private:
  base::FileDescriptor file_;  // its end releases the lock
};

constexpr double kStageDeadline = 7 * 86400.0;

/// With defaults filled in; the tables of a transform as they are.
Value resolved_stage(Runtime& runtime, const Config& config) {
  if (config.find("transform") != nullptr) return config.root();
  return config::check_run(config, runtime.registry(), {}).resolved.root();
}

/// Digest of a resolved configuration, with the keys of other stages in place of their folders.
std::string stage_key(Value root, const std::vector<std::string>& folders,
                      const std::vector<std::string>& keys) {
  if (Value* const run = root.find("run")) run->erase("name");
  for_each_text(root, [&](Value& text) {
    const auto found = std::ranges::find(folders, text.text());
    if (found == folders.end()) return;
    Value key("key:" + keys[static_cast<std::size_t>(found - folders.begin())]);
    text = std::move(key);
  });
  const std::string text = to_toml(root, false);
  return sha256_of(std::as_bytes(std::span(text))).substr(0, kKeyDigits);
}

/// The key does not depend on what the stages before came to, so it is known before they are trained.
std::string key_of_stage(Runtime& runtime, const std::vector<Stage>& stages, int index,
                         const std::vector<std::string>& folders, const std::vector<std::string>& keys) {
  const Stage& stage = stages[index];
  Value resolved = at_stage(stage.origin, stage.name, [&] {
    return resolved_stage(runtime, stage_config(stages, index, folders, ModelTable::kFile));
  });
  if (stage.model_of >= 0) resolved.set("model_of", Value(keys[stage.model_of]), stage.origin);
  return stage_key(std::move(resolved), folders, keys);
}

/// Name of the folder of a stage that several runs share.
std::string shared_name(const Stage& stage, const std::string& key) {
  return fmt::format("{}-{}", stage.name, key);
}

class Stages {
 public:
  Stages(Runtime& runtime, const Config& file, const TrainRequest& request, const StagePlan& plan)
      : runtime_(runtime),
        request_(request),
        plan_(plan),
        stages_(read_stages(file)),
        files_(make_posix_files()) {
    if (request.place.rank >= 0)
      fail_config(
          "a run with stages has one process in this version; train the stages one by one, each with "
          "[init] from = the one before");
    check_all();
    std::string base = request.run_dir;
    if (base.empty()) {
      const Value* const name = file.find("run.name");
      base = "runs/" + (name == nullptr ? std::string("run") : name->text());
    }
    attempt_ = (request.resume ? open_newest_attempt(*files_, base) : create_run_folder(*files_, base)).path;
    attempt_ = std::filesystem::absolute(attempt_).string();
  }

  RunResult run() {
    RunResult result;
    for (int index = 0; index < static_cast<int>(stages_.size()); ++index) {
      const Config ready = stage_config(stages_, index, folders_);
      const Value resolved = at_stage(stages_[index].origin, stages_[index].name,
                                      [&] { return resolved_stage(runtime_, ready); });
      keys_.push_back(key_of_stage(runtime_, stages_, index, folders_, keys_));
      const std::string folder = folder_of(index);
      std::unique_ptr<StageLock> lock;
      if (!plan_.shared.empty()) lock = std::make_unique<StageLock>(folder + ".lock", kStageDeadline);
      folders_.push_back(folder);
      const bool done = is_complete(folder);
      if (plan_.progress) plan_.progress(index, static_cast<int>(stages_.size()), stages_[index].name, done);
      if (done && !stages_[index].transforms) {
        require_same(index, resolved);
        result = read_summary(*files_, open_newest_attempt(*files_, folder).path);
      }
      if (done) continue;
      if (stages_[index].transforms) {
        at_stage(stages_[index].origin, stages_[index].name, [&] { plan_.transform(ready, folder); });
        continue;
      }
      TrainRequest request = request_;
      request.run_dir = folder;
      request.resume = files_->exists(folder) && newest_attempt(*files_, folder) > 0;
      result = at_stage(stages_[index].origin, stages_[index].name,
                        [&] { return runtime_.train(ready, request); });
      if (result.status != "completed" || result.exit_status != 0) return result;
    }
    stand_for_last();
    result.folder = attempt_;
    return result;
  }

 private:
  /// A mistake in the last stage is found before the first is trained, and before anything is written.
  void check_all() {
    const std::vector<std::string> somewhere(stages_.size(), std::filesystem::current_path().string());
    for (std::size_t index = 0; index < stages_.size(); ++index) {
      const Stage& stage = stages_[index];
      at_stage(stage.origin, stage.name, [&] {
        resolved_stage(runtime_,
                       stage_config(stages_, static_cast<int>(index), somewhere, ModelTable::kFile));
      });
    }
  }

  /// NN-name below the attempt; where stages are shared, that is a link.
  std::string folder_of(int index) {
    const std::string name = fmt::format("{:02}-{}", index + 1, stages_[index].name);
    std::string own = attempt_ + "/" + name;
    if (plan_.shared.empty()) return own;
    const std::string shared = std::filesystem::absolute(plan_.shared).string();
    files_->make_directories(shared);
    std::string target = fmt::format("{}/{}", shared, shared_name(stages_[index], keys_.back()));
    if (!files_->exists(own)) replace_by_link(own, target);
    return target;
  }

  void replace_by_link(const std::string& path, const std::string& target) {
    const std::string partial = path + ".tmp";
    if (std::filesystem::is_symlink(partial)) files_->remove(partial);
    files_->symlink(target, partial);
    files_->rename(partial, path);
  }

  bool is_complete(const std::string& folder) {
    if (models::is_model_folder(*files_, folder)) return true;
    if (!files_->exists(folder) || newest_attempt(*files_, folder) == 0) return false;
    const std::string attempt = open_newest_attempt(*files_, folder).path;
    return files_->exists(attempt + "/summary.json") && read_summary(*files_, attempt).status == "completed";
  }

  /// A stage that is complete is not trained again, so it must be the one that the file describes.
  void require_same(int index, const Value& now) {
    const std::string path = open_newest_attempt(*files_, folders_.back()).path + "/config.resolved.toml";
    std::vector<std::string> keys;
    for (const Difference& difference : differences(Config::load(path, {}).root(), now))
      if (difference.key != "run.name") keys.push_back(difference.key);
    if (!keys.empty())
      fail_at(stages_[index].origin,
              fmt::format(
                  "stage {} is complete, with another configuration: {} differ{}; start a new attempt "
                  "without --resume",
                  config::quoted(stages_[index].name), fmt::join(keys, ", "), keys.size() == 1 ? "s" : ""));
  }

  // Whoever reads the run reads its last stage.
  void stand_for_last() {
    const std::string last =
        stages_.back().transforms ? folders_.back() : open_newest_attempt(*files_, folders_.back()).path;
    for (const DirectoryEntry& entry : files_->list(last)) {
      if (entry.name.starts_with(".")) continue;
      replace_by_link(attempt_ + "/" + entry.name, last + "/" + entry.name);
    }
    files_->sync_directory(attempt_);
  }

  Runtime& runtime_;
  TrainRequest request_;
  const StagePlan& plan_;
  std::vector<Stage> stages_;
  std::unique_ptr<FileSystem> files_;
  std::string attempt_;
  std::vector<std::string> folders_, keys_;  ///< of the stages so far
};

/// Empty folders that stand for those of stages: paths of a configuration must exist. Removed at the end.
class Placeholders {
 public:
  Placeholders() {
    std::string name = (std::filesystem::temp_directory_path() / "tenon-stages-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail_run(fmt::format("cannot make a folder {}", name));
    root_ = name;
  }
  ~Placeholders() {
    std::error_code none;
    std::filesystem::remove_all(root_, none);
  }
  Placeholders(const Placeholders&) = delete;
  Placeholders& operator=(const Placeholders&) = delete;

  std::string folder(const std::string& stage) const {
    const std::filesystem::path path = root_ / stage;
    std::filesystem::create_directory(path);
    return path.string();
  }

 private:
  std::filesystem::path root_;
};

}  // namespace

std::vector<config::TableSpecs> stage_tables() {
  std::vector<config::TableSpecs> tables(3);
  tables[0].path = "stage";
  tables[0].specs = kStage;
  tables[0].is_list = true;
  tables[1].path = "at";
  tables[1].open = true;
  tables[2].path = "transform";  // options of the stages that transform, whose types the stages have
  tables[2].open = true;
  return tables;
}

std::vector<Stage> read_stages(const Config& file) {
  const Value* const list = file.find("stage");
  if (list == nullptr) return {};
  if (!list->is_array() || list->array().empty())
    fail_at(list->origin, fmt::format("expected [[stage]], a list of tables, found {}", list->description()));
  std::vector<Stage> stages;
  std::vector<std::string> problems, names;
  std::vector<Resolution> tables;
  for (const Value& table : list->array()) {
    if (!table.is_table())
      fail_at(table.origin,
              fmt::format("expected [[stage]], a list of tables, found {}", table.description()));
    tables.push_back(
        resolve_options({.table = table, .owner = "[[stage]]", .specs = option_list(kStage)}, problems));
    if (!problems.empty()) continue;
    names.emplace_back(tables.back().options->text("name"));
    if (!is_folder_name(names.back()) || names.back() == "draw")
      problems.push_back(
          fmt::format("{}: stage {}: a name has letters, digits, '_' and '-', and is not \"draw\"",
                      table.origin.text(), config::quoted(names.back())));
    if (std::ranges::count(names, names.back()) > 1)
      problems.push_back(
          fmt::format("{}: two stages are called {}", table.origin.text(), config::quoted(names.back())));
  }
  throw_problems(problems);
  check_names(file, names);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const Origin& origin = list->array()[i].origin;
    Stage stage{names[i],
                at_stage(origin, names[i], [&] { return laid_over(file, *tables[i].options, origin); }),
                {},
                origin,
                tables[i].options->has("transform")};
    (stage.transforms ? set_source : set_init)(stage, *tables[i].options, static_cast<int>(i), stages);
    set_model(stage, file, *tables[i].options, stages);
    find_needs(stage, static_cast<int>(i), names);
    find_use(stage, stages);
    for (const int needed : stage.needs) {
      if (!stages[needed].transforms && stages[needed].config.find("recovery") == nullptr)
        fail_at(stages[needed].origin,
                fmt::format("stage {} keeps no weights, and stage {} reads them; give it a [recovery] type",
                            config::quoted(stages[needed].name), config::quoted(stage.name)));
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

Config stage_config(const std::vector<Stage>& stages, int index, const std::vector<std::string>& folders,
                    ModelTable table) {
  const Stage& self = stages[index];
  Value root = self.config.root();
  if (self.model_of >= 0) {
    Value model = self.file_model;
    if (table == ModelTable::kFound)
      model = *Config::load(folders.at(self.model_of) + "/model.toml", {}).find("model");
    std::vector<Config::Dropped> dropped;
    if (const Value* const own = root.find("model")) config::merge_tables(model, Value(*own), "", dropped);
    root.set("model", std::move(model), self.origin);
  }
  for_each_text(root, [&](Value& text) {
    if (const int stage = stage_named(text.text(), stages); stage >= 0)
      text = with_origin(Value(folders.at(stage)), text.origin);
  });
  return stages[index].config.with_root(std::move(root));
}

namespace {

Config check_alone(Runtime& runtime, const std::vector<Stage>& stages, int index,
                   std::vector<std::string>* facts) {
  const Stage& stage = stages[index];
  std::vector<std::string> names;
  for (const Stage& each : stages) names.push_back(std::string(kReference) + each.name);
  Value root = stage_config(stages, index, names, ModelTable::kFile).root();  // references stay as they are
  if (stage.begins_with >= 0) root.erase("init");
  if (stage.transforms) {
    if (facts != nullptr) *facts = {"a transform: its sources are opened when they are there"};
    return stage.config;
  }
  if (!stage.reads_others) return runtime.check(stage.config.with_root(std::move(root)), facts);
  const std::vector<std::string> somewhere(stages.size(), std::filesystem::current_path().string());
  const Config placed = stage_config(stages, index, somewhere, ModelTable::kFile);
  if (facts != nullptr) *facts = {"reads other stages, so it is built when they are there"};
  return config::check_run(placed, runtime.registry(), {}).resolved;
}

}  // namespace

Config check_stage(Runtime& runtime, const std::vector<Stage>& stages, int index,
                   std::vector<std::string>* facts) {
  return at_stage(stages[index].origin, stages[index].name,
                  [&] { return check_alone(runtime, stages, index, facts); });
}

std::vector<std::string> shared_stage_names(Runtime& runtime, const Config& file) {
  const std::vector<Stage> stages = read_stages(file);
  const Placeholders somewhere;
  std::vector<std::string> names, folders, keys;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    keys.push_back(key_of_stage(runtime, stages, static_cast<int>(i), folders, keys));
    names.push_back(shared_name(stages[i], keys.back()));
    folders.push_back(somewhere.folder(stages[i].name));
  }
  return names;
}

RunResult train_stages(Runtime& runtime, const Config& file, const TrainRequest& request,
                       const StagePlan& plan) {
  return Stages(runtime, file, request, plan).run();
}

}  // namespace tenon::train
