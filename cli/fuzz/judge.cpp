#include "fuzz/judge.hpp"

#include "base/child_process.hpp"
#include "config/run_schema.hpp"
#include "fuzz/bases.hpp"
#include "fuzz/draws.hpp"
#include "fuzz/space.hpp"
#include "identities/stated.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace tenon::fuzz {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

/// Children of a judgement end within this time, or are killed and found: one that waits in vain ends by its
/// own deadline first.
constexpr milliseconds kChildLimit{static_cast<int>(1000 * (Space::kDeadline + 20))};

/// Stated identities that a composition is held to; each takes two runs.
constexpr int kMostStated = 3;

/// How often a refusal is asked for again where two differ.
constexpr int kRefusals = 12;

constexpr IdentityText kIdentities[] = {
    {"check", "is accepted, or is refused by check and by train in the same words with the same status"},
    {"trains", "that check accepts trains to the end"},
    {"repetition", "has the same weights, state and traffic a second time"},
    {"resolved", "is the same run as its config.resolved.toml"},
    {"order", "is the same run with its keys in another order"},
    {"layers", "is the same run as two layers, in either order"},
    {"observers", "ends alike without observers and with all of them"},
    {"plugin_twice", "ends alike with a plugin path given twice"},
    {"crash", "killed in a drawn phase and resumed ends with the same bits"},
    {"sigterm", "stopped by SIGTERM in a drawn slot and resumed ends with the same bits"},
    {"resume_twice", "killed, resumed, killed and resumed ends with the same bits"},
    {"socket", "has the bits of threads as processes over sockets"},
    {"openmpi", "has the bits of threads as processes over Open MPI"},
    {"mpich", "has the bits of threads as processes over MPICH"},
    {"transport_resume", "goes on from a checkpoint of threads over sockets with the same bits"},
    {"clock", "of a synchronous strategy has the same bits under the wall clock and a simulated one"},
    {"block_order", "has the same bits on the emulated device in ascending and descending order"},
    {"device", "has the same first loss on the processor and the emulated device, but for rounding"},
    {"stated", "ends as the settings that one of its components states to be equal"},
    {"memory", "takes no more memory than check predicts"},
};

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

/// Keys of all tables from last to first; lists stay, since their order has a meaning.
Value reversed(const Value& value) {
  if (value.is_array()) {
    Value::Array list;
    for (const Value& one : value.array()) list.push_back(reversed(one));
    return Value(std::move(list));
  }
  if (!value.is_table()) return value;
  Value out;
  for (std::size_t i = value.table().size(); i > 0; --i) {
    const Member& member = value.table()[i - 1];
    out.set(member.key, reversed(member.value), member.origin);
  }
  return out;
}

/// An observer whose intervals of slots are as short as they may be: by default some look at none of a few
/// slots. One whose plugin is broken is refused by the run.
Value busy_observer(const Registry& registry, const std::string& id) {
  Value observer;
  observer.set("type", Value(id), {});
  ComponentSchema schema;
  try {
    schema = registry.describe("observer/1", id);
  } catch (const Error&) {
    return observer;
  }
  for (const tenon_option_v1* const spec : schema.options) {
    const std::string_view unit = spec->unit == nullptr ? "" : spec->unit;
    if (spec->type != TENON_OPTION_INT || unit != "slots") continue;
    const double least = std::isnan(spec->min) ? 1 : std::max(1.0, spec->min);
    observer.set(spec->name, Value(static_cast<std::int64_t>(least)), {});
  }
  return observer;
}

/// Whether a run with this declaration has the same bits again.
bool is_repeatable(const std::string& nondeterminism) {
  return nondeterminism.empty() || nondeterminism.starts_with("not checked");
}

/// Whether a run ended because its training diverged, by the words of the loop or of a component. Drawn
/// options are legal, and need not train well.
bool diverged(const std::string& error) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"loss is ", "set run.on_nan"},
      {"(recovery.", "training diverged"},
      {"(precision.", "gradients were not finite"},
      {"(dataset.", "the weights are not usable"},
  };
  return std::any_of(std::begin(kWords), std::end(kWords), [&](const auto& words) {
    return error.find(words.first) != std::string::npos && error.find(words.second) != std::string::npos;
  });
}

std::string train_command(const char* file, const char* folder) {
  return fmt::format("tenon train {} --run-dir {}", file, folder);
}

}  // namespace

std::span<const IdentityText> all_identities() {
  return kIdentities;
}

std::string failure_kind(const Finding& finding) {
  std::string kind = finding.identity;
  if (kind != "trains") return kind;
  std::istringstream words(finding.text);
  for (std::string word; words >> word;)
    if (word.find_first_of("0123456789/") == std::string::npos) kind += " " + word;
  return kind;
}

std::vector<std::string> identities_of(std::uint64_t seed, std::uint64_t index) {
  static const std::vector<std::string> kSameRun{"repetition", "resolved",  "order",
                                                 "layers",     "observers", "plugin_twice"};
  static const std::vector<std::string> kResumes{"crash", "sigterm", "resume_twice"};
  static const std::vector<std::string> kTransports{"socket", "transport_resume", "socket", "openmpi",
                                                    "mpich"};
  static const std::vector<std::string> kOthers{"clock", "block_order", "device", "memory"};
  const auto turn = [&](const std::vector<std::string>& all, const char* group, std::uint64_t number) {
    Draws round(seed, fmt::format("fuzz.identities.{}", group), number / all.size());
    return all[round.order(all.size())[number % all.size()]];
  };
  std::vector<std::string> chosen{turn(kSameRun, "same_run", index)};
  if (index % 3 == 0) chosen.emplace_back("stated");
  if (index % 3 == 1) chosen.push_back(turn(kResumes, "resumes", index / 3));
  if (index % 3 == 2) chosen.push_back(turn(kOthers, "others", index / 3));
  if (index % 6 == 5) chosen.push_back(turn(kTransports, "transports", index / 6));
  return chosen;
}

/// How a run ended.
struct Judge::Ending {
  bool threw = false;
  int status = 0;  ///< exit status that the program has
  std::string text;
  RunResult result;
  std::string lost;  ///< why nothing can be said; "" = it can
};

struct Judge::Answer {
  enum class Kind : std::uint8_t { kHeld, kLeftOut, kFailed };
  Kind kind = Kind::kHeld;
  std::string text;
  std::vector<std::string> commands = {};
  std::string other = {}, own = {};

  static Answer held() { return {}; }
  static Answer left_out(std::string why) { return {Kind::kLeftOut, std::move(why)}; }
  static Answer failed(std::string text, std::vector<std::string> commands, std::string other = {},
                       std::string own = {}) {
    return {Kind::kFailed, std::move(text), std::move(commands), std::move(other), std::move(own)};
  }
};

Judge::Judge(Runtime& runtime, Host& host, JudgeRequest request)
    : runtime_(runtime), host_(host), request_(std::move(request)) {
  write_text(path("case.toml"), to_toml(request_.root, false));
  config_ = Config::load(path("case.toml"), {});
}

Judge::Identity Judge::identity_named(std::string_view name) {
  static constexpr std::pair<std::string_view, Identity> kAll[] = {
      {"check", &Judge::check},
      {"trains", &Judge::trains},
      {"repetition", &Judge::repetition},
      {"resolved", &Judge::resolved},
      {"order", &Judge::order},
      {"layers", &Judge::layers},
      {"observers", &Judge::observers},
      {"plugin_twice", &Judge::plugin_twice},
      {"crash", &Judge::crash},
      {"sigterm", &Judge::sigterm},
      {"resume_twice", &Judge::resume_twice},
      {"socket", &Judge::socket},
      {"openmpi", &Judge::openmpi},
      {"mpich", &Judge::mpich},
      {"transport_resume", &Judge::transport_resume},
      {"clock", &Judge::clock},
      {"block_order", &Judge::block_order},
      {"device", &Judge::device},
      {"stated", &Judge::stated},
      {"memory", &Judge::memory},
  };
  for (const auto& [known, identity] : kAll)
    if (known == name) return identity;
  fail_config(fmt::format("tenon fuzz: there is no identity '{}'", name));
}

Verdict Judge::run() {
  std::vector<std::string> due{"check", "trains"};
  for (const std::string& name : request_.identities)
    if (name != due[0] && name != due[1]) due.push_back(name);
  for (const std::string& name : due) {
    const Answer answer = (this->*identity_named(name))();
    if (answer.kind == Answer::Kind::kFailed) {
      verdict_.finding = Finding{name, answer.text, answer.commands, answer.other, answer.own};
      return verdict_;
    }
    if (answer.kind == Answer::Kind::kHeld) verdict_.held.push_back(name);
    if (answer.kind == Answer::Kind::kLeftOut) verdict_.left_out.emplace_back(name, answer.text);
    const bool trained = name != "trains" || answer.kind == Answer::Kind::kHeld;
    if (!verdict_.accepted || !trained) return verdict_;
  }
  return verdict_;
}

Judge::Ending Judge::train(const Value& root, const std::string& name, bool resume) {
  Ending ending;
  try {
    TrainRequest request;
    request.run_dir = path(name);
    request.quiet = true;
    request.resume = resume;
    ending.result = runtime_.train(Config::parse(to_toml(root, false), path("case.toml"), {}), request);
    ending.status = ending.result.exit_status;
    ending.text = ending.result.error;
  } catch (const Error& error) {
    ending.threw = true;
    ending.status = error.exit_status();
    ending.text = error.what();
  }
  return ending;
}

base::ChildResult Judge::run_program(std::vector<std::string> words,
                                     std::vector<std::string> environment) const {
  return base::run_child(
      {.program = request_.program, .arguments = std::move(words), .environment = std::move(environment)},
      kChildLimit);
}

Judge::Ending Judge::read_ending(const std::string& name) const {
  Ending ending;
  const std::string text = read_text(path(name) + "/latest/summary.json");
  const nlohmann::json summary = nlohmann::json::parse(text, nullptr, false);
  if (!summary.is_object()) {
    ending.lost = "there is no summary.json";
    return ending;
  }
  ending.result.status = summary.value("status", "");
  ending.result.weights_hash = summary.value("weights_hash", "");
  ending.result.state_hash = summary.value("state_hash", "");
  ending.result.nondeterminism = summary.value("nondeterminism", "");
  ending.result.peak_anonymous_mb = summary.value("peak_anonymous_mb", 0.0);
  return ending;
}

/// Compares a run that must have ended as the first one did.
Judge::Answer Judge::compare(const Ending& found, std::string_view what, const Value* other) const {
  const std::vector<std::string> commands{train_command("case.toml", "a"),
                                          train_command(other != nullptr ? "other.toml" : "case.toml", "b")};
  const std::string toml = other == nullptr ? "" : to_toml(*other, false);
  if (found.status != 0 || found.result.status != "completed") {
    return Answer::failed(
        fmt::format("{}: expected a run that ends like the first, found status {}: {}", what, found.status,
                    found.text.empty() ? found.result.status : found.text),
        commands, toml);
  }
  if (!is_repeatable(whole_.nondeterminism) || !is_repeatable(found.result.nondeterminism))
    return Answer::left_out("not repeatable: " + (is_repeatable(whole_.nondeterminism)
                                                      ? found.result.nondeterminism
                                                      : whole_.nondeterminism));
  if (found.result.weights_hash != whole_.weights_hash)
    return Answer::failed(fmt::format("{}: expected weights_hash {}, found {}", what, whole_.weights_hash,
                                      found.result.weights_hash),
                          commands, toml);
  if (found.result.state_hash != whole_.state_hash)
    return Answer::failed(fmt::format("{}: expected state_hash {}, found {} (weights_hash is equal)", what,
                                      whole_.state_hash, found.result.state_hash),
                          commands, toml);
  return Answer::held();
}

Judge::Answer Judge::varied(const Value& root, const std::string& name, std::string_view what) {
  return compare(train(root, name), what, &root);
}

// ---- check and train

Judge::Answer Judge::check() {
  const std::vector<std::string> commands{"tenon check case.toml", train_command("case.toml", "a")};
  try {
    runtime_.check(config_, &facts_);
    verdict_.accepted = true;
  } catch (const Error& error) {
    verdict_.refusal = error.what();
    if (verdict_.refusal.empty()) return Answer::failed("check refuses without a word", commands);
    // A file with two mistakes is refused for that which a rank meets first.
    using Said = std::pair<int, std::string>;
    std::set<Said> said{{error.exit_status(), verdict_.refusal}};
    Ending ending;
    for (int again = 0; again < kRefusals; ++again) {
      ending = train(request_.root, "refused");
      if (!ending.threw) break;
      if (said.count({ending.status, ending.text}) > 0) return Answer::held();
      try {
        runtime_.check(config_, nullptr);
      } catch (const Error& other) {
        said.insert({other.exit_status(), other.what()});
      }
    }
    return Answer::failed(fmt::format("check refuses with status {}: {}\ntrain ends with status {}: {}",
                                      error.exit_status(), verdict_.refusal, ending.status,
                                      ending.text.empty() ? ending.result.status : ending.text),
                          commands);
  }
  return Answer::held();
}

Judge::Answer Judge::trains() {
  const Ending ending = train(request_.root, "whole");
  whole_ = ending.result;
  const std::vector<std::string> commands{"tenon check case.toml", train_command("case.toml", "a")};
  if (ending.status == 1 && diverged(ending.text))
    return Answer::left_out("training diverged, and the run ended");
  if (ending.status == static_cast<int>(ErrorKind::kDeviceLost) && keeps_its_device_by_defaults())
    return Answer::left_out("options of the device say that it is lost");
  if (ending.threw || ending.status != 0 || ending.result.status != "completed") {
    return Answer::failed(fmt::format("check accepts it, and train ends with status {}: {}", ending.status,
                                      ending.text.empty() ? ending.result.status : ending.text),
                          commands);
  }
  if (whole_.weights_hash.empty() || whole_.state_hash.empty())
    return Answer::failed("the run that ended has no hashes", commands);
  return Answer::held();
}

/// Whether the run trains to its end where no option of its device is set.
bool Judge::keeps_its_device_by_defaults() {
  Value root = request_.root;
  Value device;
  const Value* const table = root.find("device");
  if (table == nullptr || table->find("type") == nullptr) return false;
  device.set("type", *table->find("type"), {});
  root.set("device", std::move(device), {});
  return train(root, "device_by_defaults").status == 0;
}

// ---- the same run, told otherwise

Judge::Answer Judge::repetition() {
  const Ending again = train(request_.root, "again");
  Answer answer = compare(again, "a repetition", nullptr);
  if (answer.kind != Answer::Kind::kHeld) return answer;
  // Words of the control plane come when clocks say so: a save that a timer asked for, a heartbeat.
  std::map<std::string, std::uint64_t> sent = again.result.bytes_by_purpose;
  std::map<std::string, std::uint64_t> expected = whole_.bytes_by_purpose;
  sent.erase("control");
  expected.erase("control");
  if (sent != expected) return Answer::failed("a repetition: rank 0 sent other bytes", answer.commands);
  if (again.result.quantized_operands != whole_.quantized_operands)
    return Answer::failed("a repetition: other numbers of operands were converted", answer.commands);
  return answer;
}

Judge::Answer Judge::resolved() {
  return varied(Config::load(whole_.folder + "/config.resolved.toml", {}).root(), "resolved",
                "config.resolved.toml");
}

Judge::Answer Judge::order() {
  return varied(reversed(request_.root), "order", "keys from last to first");
}

Judge::Answer Judge::layers() {
  Value halves[2];
  std::size_t i = 0;
  for (const Member& member : request_.root.table())
    halves[i++ % 2].set(member.key, member.value, member.origin);
  for (int half = 0; half < 2; ++half)
    write_text(path(fmt::format("layer{}.toml", half)), to_toml(halves[half], false));
  for (const char* const text :
       {"extends = [\"layer0.toml\", \"layer1.toml\"]\n", "extends = [\"layer1.toml\", \"layer0.toml\"]\n"}) {
    write_text(path("layered.toml"), text);
    const Value root = Config::load(path("layered.toml"), {}).root();
    Answer answer = varied(root, "layers", "the file in two layers");
    if (answer.kind != Answer::Kind::kHeld) return answer;
    fs::remove_all(path("layers"));
  }
  return Answer::held();
}

Judge::Answer Judge::observers() {
  Value root = request_.root;
  if (root.find("observe") != nullptr) {
    root.erase("observe");
    Answer answer = varied(root, "unobserved", "no observers");
    if (answer.kind != Answer::Kind::kHeld) return answer;
  }
  Value::Array all;
  for (const std::string& id : runtime_.registry().ids("observer/1"))
    all.push_back(busy_observer(runtime_.registry(), id));
  root.set("observe", Value(std::move(all)), {});
  return varied(root, "observed", "all observers");
}

Judge::Answer Judge::plugin_twice() {
  std::string file;
  for (const PluginStatus& plugin : runtime_.registry().plugins())
    if (plugin.state == PluginStatus::State::kLoaded && plugin.file.starts_with("/")) file = plugin.file;
  if (file.empty()) return Answer::left_out("no plugin comes from a file");
  Value root = request_.root;
  Value::Array paths;
  if (const Value* const present = config_.find("plugins.paths")) paths = present->array();
  for (int i = 0; i < 2; ++i) paths.push_back(Value(file));
  set_member(root, "plugins.paths", Value(std::move(paths)));
  // As the program does it: plugins are found before the run.
  write_text(path("twice.toml"), to_toml(root, false));
  const base::ChildResult child =
      run_program({"train", path("twice.toml"), "--quiet", "--run-dir", path("twice")});
  if (!child.ended || child.status != 0)
    return Answer::failed(fmt::format("a plugin path given twice: the run {}.{}",
                                      base::describe_exit(child, kChildLimit), base::last_words(child.words)),
                          {train_command("case.toml", "a"), train_command("other.toml", "b")},
                          to_toml(root, false));
  return compare(read_ending("twice"), "a plugin path given twice", &root);
}

// ---- interrupted and resumed

/// Whether exchanges of weights end when the clock says so. A save completes what is on its way, and a resume
/// begins anew, so either may change what comes after, also under a simulated clock.
bool Judge::follows_clock() const {
  const Value* const type = config_.find("sync.type");
  return type != nullptr && (runtime_.registry().find("sync/1", type->text()).component->capabilities &
                             TENON_CAP_NONDETERMINISTIC) != 0;
}

/// Whether replicas read and write rows of one table in the order of their clocks.
bool Judge::rows_on_request() const {
  const Value* const rows = config_.find("parallel.rows");
  return rows != nullptr && rows->text() == "request";
}

/// Why a resume of this run need not have the bits of the whole run; "" if it must.
std::string Judge::inexact_resume(const std::string& name) const {
  if (follows_clock()) return "exchanges follow the clock, and no save holds what was on its way";
  const fs::path checkpoints = path(name) + "/latest/checkpoints";
  std::error_code ignored;
  if (!fs::exists(checkpoints, ignored)) return "";
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    const nlohmann::json manifest =
        nlohmann::json::parse(read_text(entry.path().string() + "/MANIFEST.json"), nullptr, false);
    if (!manifest.is_object()) continue;
    if (!manifest.value("consistent", true)) return "a save holds tensors of several moments";
    if (manifest.dump().find("\"encoding\"") != std::string::npos) return "a save holds rounded rows";
  }
  return "";
}

Judge::Answer Judge::started_again(bool twice, bool by_signal) {
  Draws draws(request_.seed, "fuzz.crash", request_.index);
  const std::int64_t ranks = config::check_run(config_, runtime_.registry(), {}).core.parallel.world();
  // "done": a save is complete, so the resume begins with it.
  static const std::vector<std::string> kPhases{"compute",  "compute", "done",  "done", "done",
                                                "evaluate", "copy",    "write", "sync", "manifest",
                                                "verify",   "rename",  "gc"};
  std::vector<std::string> commands;
  const std::string name = "stopped";
  bool resumes = false;
  // A phase that the run never enters ends nothing; then it is ended while it computes.
  bool computes = by_signal;
  for (int stops = twice ? 2 : 1; stops > 0;) {
    std::vector<std::string> words{"train", path("case.toml"), "--quiet", "--run-dir", path(name)};
    if (resumes) words.emplace_back("--resume");
    const std::string phase = computes ? "compute" : draws.one_of(kPhases);
    const std::int64_t most = phase == "compute" ? std::max<std::int64_t>(1, whole_.steps * ranks)
                              : phase == "done"  ? 2
                                                 : 4;
    // In the first third of the slots little is saved.
    const std::int64_t least = phase == "compute" && !resumes && draws.chance(0.8) ? most / 3 + 1 : 1;
    const std::string told = fmt::format("{}={}:{}", by_signal ? "TENON_STOP_AT" : "TENON_KILL_AT", phase,
                                         draws.between(least, most));
    base::ChildFiles files;
    files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    files.open(STDOUT_FILENO, path("words"), O_WRONLY | O_CREAT | O_TRUNC);
    files.copy(STDOUT_FILENO, STDERR_FILENO);
    base::ChildProcess child;
    if (child.start({.program = request_.program, .arguments = words, .environment = {told}}, files) != 0)
      return Answer::left_out("no process can be started");
    const auto until = Steady::now() + kChildLimit;
    while (!child.ended() && Steady::now() < until) std::this_thread::sleep_for(milliseconds(2));
    commands = {fmt::format("{} tenon train case.toml --run-dir b{}", told, resumes ? " --resume" : ""),
                "tenon train case.toml --run-dir b --resume"};
    if (child.running())
      return Answer::failed(
          fmt::format("the run does not end within {} s ({})", kChildLimit.count() / 1000, told), commands);
    const int status = child.status();
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    // A signal that comes after the end of the run is the system's to answer.
    const bool late = by_signal && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM &&
                      read_ending(name).result.status == "completed";
    if (!killed && !late && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
      return Answer::failed(fmt::format("the run {} ({}).{}", base::describe_exit(status), told,
                                        base::last_words(read_text(path("words")))),
                            commands);
    if (!fs::exists(path(name) + "/latest")) return Answer::left_out("nothing of the run was on disk yet");
    if (!killed && !resumes && phase != "compute") {
      fs::remove_all(path(name));
      computes = true;
      continue;
    }
    computes = by_signal;
    resumes = true;
    --stops;
  }
  if (const std::string why = inexact_resume(name); !why.empty()) {
    const Ending ending = train(request_.root, name, true);
    if (ending.status != 0)
      return Answer::failed(fmt::format("a resume ends with status {}: {}", ending.status, ending.text),
                            commands);
    return Answer::left_out(why);
  }
  Answer answer = compare(train(request_.root, name, true), "interrupted and resumed", nullptr);
  if (answer.kind == Answer::Kind::kFailed) answer.commands = commands;
  return answer;
}

Judge::Answer Judge::crash() {
  return started_again(false, false);
}

Judge::Answer Judge::sigterm() {
  return started_again(false, true);
}

Judge::Answer Judge::resume_twice() {
  return started_again(true, false);
}

// ---- transports

Judge::Ending Judge::launch(const std::string& transport, const std::string& name, bool resume) {
  const std::int64_t ranks = config::check_run(config_, runtime_.registry(), {}).core.parallel.world();
  std::vector<std::string> words{"launch",  "-n",    std::to_string(ranks), "--transport", transport,
                                 "--",      "train", path("case.toml"),     "--quiet",     "--run-dir",
                                 path(name)};
  if (resume) words.emplace_back("--resume");
  const base::ChildResult child = run_program(words);
  if (child.ended && child.status == 0) return read_ending(name);
  Ending ending;
  ending.status = child.ended && WIFEXITED(child.status) ? WEXITSTATUS(child.status) : 1;
  ending.text = base::describe_exit(child, kChildLimit) + "." + base::last_words(child.words);
  // Threads can do what processes cannot, and a library or its launcher may be absent.
  if (child.ended && ending.status == 2) ending.lost = "refused with " + transport + ": " + ending.text;
  if (child.ended && (ending.status == 3 || child.words.find("cannot be started") != std::string::npos))
    ending.lost = "no " + transport + " here";
  return ending;
}

Judge::Answer Judge::over(const std::string& transport) {
  const std::vector<std::string> ids = runtime_.registry().ids("transport/1");
  if (std::find(ids.begin(), ids.end(), transport) == ids.end())
    return Answer::left_out("this build has no " + transport);
  if (transport != "socket" &&
      std::system(fmt::format("command -v mpirun.{} >/dev/null 2>&1", transport).c_str()) != 0)
    return Answer::left_out("there is no mpirun." + transport);
  // Refused there; mpirun may kill the other ranks before they say so, and then ends with their status.
  for (const char* const emulated : {"transport.clock", "transport.link"})
    if (transport != "socket" && config_.find(emulated) != nullptr)
      return Answer::left_out(fmt::format("[{}] is of threads", emulated));
  const Ending ending = launch(transport, transport, false);
  if (!ending.lost.empty()) return Answer::left_out(ending.lost);
  Answer answer = compare(ending, "processes over " + transport, nullptr);
  if (answer.kind == Answer::Kind::kFailed)
    answer.commands = {
        train_command("case.toml", "a"),
        fmt::format("tenon launch -n RANKS --transport {} -- train case.toml --run-dir b", transport)};
  return answer;
}

Judge::Answer Judge::socket() {
  return over("socket");
}

Judge::Answer Judge::openmpi() {
  return over("openmpi");
}

Judge::Answer Judge::mpich() {
  return over("mpich");
}

Judge::Answer Judge::transport_resume() {
  Draws draws(request_.seed, "fuzz.transport_resume", request_.index);
  const std::int64_t ranks = config::check_run(config_, runtime_.registry(), {}).core.parallel.world();
  const std::int64_t most = std::max<std::int64_t>(1, whole_.steps * ranks);
  const std::string told = fmt::format("TENON_KILL_AT=compute:{}", draws.between(most / 3 + 1, most));
  const base::ChildResult child =
      run_program({"train", path("case.toml"), "--quiet", "--run-dir", path("moved")}, {told});
  if (!child.ended)
    return Answer::failed("the run does not end", {told + " " + train_command("case.toml", "b")});
  if (!fs::exists(path("moved") + "/latest")) return Answer::left_out("nothing of the run was on disk yet");
  if (const std::string why = inexact_resume("moved"); !why.empty()) return Answer::left_out(why);
  const Ending ending = launch("socket", "moved", true);
  if (!ending.lost.empty()) return Answer::left_out(ending.lost);
  Answer answer = compare(ending, "a checkpoint of threads, resumed over sockets", nullptr);
  if (answer.kind == Answer::Kind::kFailed)
    answer.commands = {told + " " + train_command("case.toml", "b"),
                       "tenon launch -n RANKS -- train case.toml --run-dir b --resume"};
  return answer;
}

// ---- clocks and devices

Judge::Answer Judge::clock() {
  // Costs and times of the emulated job follow the clock, and so does what they decide.
  if (request_.root.find("emulate") != nullptr) return Answer::left_out("an emulated job follows its clock");
  Value root = request_.root;
  const Value* const clock = config_.find("transport.clock.type");
  if (clock != nullptr && clock->is_text() && clock->text() == "simulated") {
    erase_member(root, "transport.clock");
  } else {
    set_member(root, "transport.type", Value(std::string("thread")));
    set_member(root, "transport.clock.type", Value(std::string("simulated")));
    set_member(root, "transport.clock.compute_seconds", Value(0.001));
  }
  try {
    runtime_.check(Config::parse(to_toml(root, false), path("clock.toml"), {}), nullptr);
  } catch (const Error& error) {
    return Answer::left_out(std::string("the other clock is refused: ") + error.what());
  }
  Ending ending = train(root, "clock");
  // The state has the clock's own numbers; weights have none.
  ending.result.state_hash = whole_.state_hash;
  return compare(ending, "the other clock", &root);
}

Judge::Answer Judge::block_order() {
  RunResult results[2];
  Value root = request_.root;
  const Value* const threads = config_.find("device.threads");
  for (int descending = 0; descending < 2; ++descending) {
    Value device;
    device.set("type", Value(std::string("cuda_emulated")), {});
    device.set("order", Value(std::string(descending == 1 ? "descending" : "ascending")), {});
    if (threads != nullptr) device.set("threads", *threads, {});
    Value changed = root;
    changed.set("device", std::move(device), {});
    try {
      runtime_.check(Config::parse(to_toml(changed, false), path("device.toml"), {}), nullptr);
    } catch (const Error& error) {
      return Answer::left_out(std::string("the emulated device is refused: ") + error.what());
    }
    const Ending ending = train(changed, descending == 1 ? "descending" : "ascending");
    results[descending] = ending.result;
    if (ending.status != 0)
      return Answer::failed(fmt::format("the emulated device: status {}: {}", ending.status, ending.text),
                            {"tenon check other.toml", train_command("other.toml", "b")},
                            to_toml(changed, false));
    root = std::move(changed);
  }
  if (!is_repeatable(results[0].nondeterminism)) return Answer::left_out(results[0].nondeterminism);
  if (results[0].weights_hash == results[1].weights_hash) return Answer::held();
  return Answer::failed(
      fmt::format("blocks in descending order: expected weights_hash {}, found {}", results[0].weights_hash,
                  results[1].weights_hash),
      {train_command("other.toml", "a") + " --set device.order=ascending", train_command("other.toml", "b")},
      to_toml(root, false));
}

Judge::Answer Judge::device() {
  // One slot: later ones add up what rounding differs, and training may amplify it.
  double losses[2];
  Value other;
  for (const char* const type : {"cpu", "cuda_emulated"}) {
    Value root = request_.root;
    Value device;
    device.set("type", Value(std::string(type)), {});
    device.set("threads", Value(std::int64_t{1}), {});
    root.set("device", std::move(device), {});
    set_member(root, "run.steps", Value(std::int64_t{1}));
    set_member(root, "run.log_every", Value(std::int64_t{1}));
    root.erase("fault");
    root.erase("emulate");
    try {
      runtime_.check(Config::parse(to_toml(root, false), path("device.toml"), {}), nullptr);
    } catch (const Error& error) {
      return Answer::left_out(std::string("the other device is refused: ") + error.what());
    }
    const Ending ending = train(root, type);
    other = root;
    if (ending.status != 0)
      return Answer::failed(fmt::format("device {}: status {}: {}", type, ending.status, ending.text),
                            {"tenon check other.toml", train_command("other.toml", "b")},
                            to_toml(root, false));
    const auto loss = ending.result.metrics.find("train/loss");
    if (loss == ending.result.metrics.end()) return Answer::left_out("no loss is logged in the first slot");
    losses[std::string_view(type) == "cpu" ? 0 : 1] = loss->second;
  }
  if (!std::isfinite(losses[0]) && !std::isfinite(losses[1])) return Answer::held();
  // Operands that are converted may fall on either side of a boundary; the others differ by their sums alone.
  const bool wide = whole_.quantized_operands.empty();
  const double bound = (wide ? 1e-4 : 5e-2) * std::max(1.0, std::abs(losses[0]));
  if (std::abs(losses[0] - losses[1]) <= bound) return Answer::held();
  return Answer::failed(
      fmt::format("first loss: {} on the processor and {} on the emulated device; expected a "
                  "difference of at most {}",
                  losses[0], losses[1], bound),
      {train_command("other.toml", "a") + " --set device.type=cpu", train_command("other.toml", "b")},
      to_toml(other, false));
}

// ---- what components state

Judge::Answer Judge::stated() {
  struct Asked {
    std::string place;
    identities::Stated identity;
  };
  std::vector<Asked> asked;
  for (const config::ComponentSection& section : config::component_sections()) {
    // Tables that a run has once.
    const Value* const table = section.is_list ? nullptr : request_.root.find(section.table);
    if (table == nullptr) continue;
    try {
      // Its saves stop those exchanges, and the requests of replicas for rows; an emulated job fails where
      // identities are of runs that do not.
      if (section.table == "recovery" &&
          (follows_clock() || rows_on_request() || request_.root.find("emulate") != nullptr))
        continue;
      for (identities::Stated& one : identities::stated_by(runtime_.registry(), host_, section.kind, *table))
        asked.push_back({std::string(section.table), std::move(one)});
    } catch (const Error& error) {
      // A component that needs more of a run than a host without one has.
      if (error.kind() != ErrorKind::kPlugin) continue;
      return Answer::failed(fmt::format("[{}]: {}", section.table, error.what()), {"tenon check case.toml"});
    }
  }
  if (asked.empty()) return Answer::left_out("no component states an identity");
  Draws draws(request_.seed, "fuzz.stated", request_.index);
  std::string refused;
  int held = 0;
  for (const std::size_t i : draws.order(asked.size())) {
    if (held == kMostStated) break;
    const identities::Sides sides = identities::sides_of(config_, asked[i].place, asked[i].identity);
    try {
      for (const Config* const side : {&sides.own, &sides.other}) runtime_.check(*side, nullptr);
    } catch (const Error& error) {
      refused = error.what();
      continue;
    }
    const Ending own = train(sides.own.root(), fmt::format("own{}", i));
    const Ending other = train(sides.other.root(), fmt::format("other{}", i));
    const std::vector<std::string> commands{train_command("own.toml", "a"), train_command("other.toml", "b")};
    const std::string toml = to_toml(sides.other.root(), false), own_toml = to_toml(sides.own.root(), false);
    const std::string said = fmt::format("[{}] states: {}", asked[i].place, asked[i].identity.why);
    if (diverged(own.text) && diverged(other.text))
      return Answer::left_out("training diverged on both sides");
    for (const Ending* const ending : {&own, &other}) {
      if (ending->status != 0)
        return Answer::failed(fmt::format("{}: status {}: {}", said, ending->status, ending->text), commands,
                              toml, own_toml);
      if (!is_repeatable(ending->result.nondeterminism))
        return Answer::left_out(ending->result.nondeterminism);
    }
    const auto files = make_posix_files();
    const std::string differs =
        identities::difference(*files, own.result, other.result, asked[i].identity.within);
    if (!differs.empty())
      return Answer::failed(fmt::format("{}: {}", said, differs), commands, toml, own_toml);
    ++held;
  }
  return held > 0 ? Answer::held() : Answer::left_out("check refuses one side: " + refused);
}

// ---- memory

Judge::Answer Judge::memory() {
  constexpr const char* kFact = "predicted peak of the process: ";
  double predicted = -1;
  for (const std::string& fact : facts_)
    if (fact.starts_with(kFact)) predicted = std::stod(fact.substr(std::char_traits<char>::length(kFact)));
  if (predicted < 0) return Answer::left_out("check predicts no peak");
  const base::ChildResult child =
      run_program({"train", path("case.toml"), "--quiet", "--run-dir", path("measured")});
  if (!child.ended || child.status != 0)
    return Answer::failed(
        fmt::format("the run {}.{}", base::describe_exit(child, kChildLimit), base::last_words(child.words)),
        {"tenon check case.toml", train_command("case.toml", "a")});
  const double peak = read_ending("measured").result.peak_anonymous_mb;
  // A process has memory that no plan includes: libraries, generated kernels, stacks, buffers of observers;
  // and each of its ranks the samples of its data set.
  constexpr double kOfProcess = 48, kOfRank = 16;  // MiB
  const Value* const ranks = config_.find("parallel.ranks");
  const double bound =
      1.25 * predicted + kOfProcess + kOfRank * static_cast<double>(ranks == nullptr ? 1 : ranks->integer());
  if (peak <= bound) return Answer::held();
  return Answer::failed(
      fmt::format("expected at most {:.1f} MiB ({:.1f} predicted), found {:.1f}", bound, predicted, peak),
      {"tenon check case.toml", train_command("case.toml", "a")});
}

}  // namespace tenon::fuzz
