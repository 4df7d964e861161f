// Children and scratch folders for the tests of whole runs: compiled once for all of them.
#include "run_program.hpp"

#include "test_paths.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

namespace tenon::integration {

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::map<std::string, std::string> tree(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_symlink())
      files[name] = "-> " + fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      files[name] = read_file(entry.path());
  }
  return files;
}

std::vector<std::string> changes(const fs::path& folder, const std::map<std::string, std::string>& before) {
  std::vector<std::string> names;
  const auto after = tree(folder);
  for (const auto& [name, contents] : after) {
    const auto old = before.find(name);
    if (old == before.end() || old->second != contents) names.push_back(name);
  }
  for (const auto& [name, contents] : before) {
    if (after.find(name) == after.end()) names.push_back(name + " (gone)");
  }
  return names;
}

Child::Child(const Command& command) : out_(command.folder / ".out"), err_(command.folder / ".err") {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    const bool replaced = command.environment.count(variable.substr(0, variable.find('='))) > 0;
    if (!replaced && variable.rfind("TENON_", 0) != 0) variables.push_back(variable);
  }
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  variables.emplace_back("OMP_NUM_THREADS=1");
  std::vector<std::string> words = command.through;
  words.emplace_back(TENON_PROGRAM);
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int in = ::open("/dev/null", O_RDONLY);
  const bool ready = ::dup2(in, 0) == 0 && ::dup2(out, 1) == 1 && ::dup2(err, 2) == 2 &&
                     ::chdir(command.folder.c_str()) == 0;
  if (command.largest_file != RLIM_INFINITY) {
    const rlimit limit{command.largest_file, command.largest_file};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  if (command.own_group) ::setsid();
  for (const int descriptor : command.closed) ::close(descriptor);
  if (ready) ::execvpe(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Child::ended() const {
  siginfo_t state{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         state.si_pid == pid_;
}

Ended Child::wait(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int state = 0;
  while (::waitpid(pid_, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program did not end within " << seconds << " s";
      ::kill(pid_, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid_ = -1;
  Ended ended;
  ended.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  ended.signal = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
  ended.out = read_file(out_);
  ended.err = read_file(err_);
  fs::remove(out_);
  fs::remove(err_);
  return ended;
}

Scratch::Scratch() {
  static int count = 0;
  folder_ = fs::temp_directory_path() /
            ("tenon-scratch-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
  fs::create_directories(folder_);
  folder_ = fs::canonical(folder_);
  std::string text;
  for (int i = 0; text.size() < 3000; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
  write_file(folder_ / "text.txt", text.substr(0, 3000));
  write_file(folder_ / "run.toml", kRun);
}

Ended Scratch::run(std::vector<std::string> arguments, std::map<std::string, std::string> environment) const {
  return Child({std::move(arguments), folder_, std::move(environment)}).wait();
}

Ended Scratch::train(std::vector<std::string> more, std::map<std::string, std::string> environment) const {
  more.insert(more.begin(), {"train", "run.toml", "--quiet"});
  return run(std::move(more), std::move(environment));
}

std::string Scratch::summary(const std::string& key, const std::string& attempt) const {
  const std::string text = read_file(folder_ / "runs/tiny" / attempt / "summary.json");
  std::smatch found;
  const std::regex pattern("\"" + key + "\": (\"(?:[^\"\\\\]|\\\\.)*\"|[^,\\n}]*)");
  return std::regex_search(text, found, pattern) ? found[1].str() : "no " + key;
}

std::string Scratch::plain(std::string text) const {
  text = replaced(std::move(text), folder_.string(), "{dir}");
  text = replaced(std::move(text), TENON_BINARY_DIR, "{build}");
  text = replaced(std::move(text), TENON_SOURCE_DIR, "{source}");
  text = std::regex_replace(text, std::regex("[0-9]+ plugin files?"), "{n} plugin files");
  return std::regex_replace(text, std::regex("Offered: [^.]*\\."), "Offered: {ids}.");
}

namespace {

constexpr const char* kClicks = R"([run]
name = "tiny"
steps = 24
log_every = 4
eval_every = 12

[device]
type = "cpu"
threads = 1

[transport]
type = "thread"

[data]
type = "adult"
path = "{source}/data/adult/adult.data"
test_path = "{source}/data/adult/adult.test"
buckets = 8

[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]

[optimizer]
type = "rowwise_adagrad"
lr = 0.02

[sync]
type = "ddp"

[recovery]
type = "full"
every = 6
async = false

[[observe]]
type = "tables"
)";

}  // namespace

std::vector<std::string> data_of_shipped(const std::string& name, const std::string& file) {
  std::vector<std::string> sets;
  const auto is_of = [&](const char* words) { return name.find(words) != std::string::npos; };
  if (is_of("criteo") || is_of("arithmetic")) sets.push_back("data.path=" + file);
  // Its device exists where CUDA does; the emulated one takes the same keys.
  if (is_of("dlrm_zion")) sets.push_back("device.type=cuda_emulated");
  if (is_of("arithmetic_rl")) sets.push_back("data.conversations.path=" + file);
  return sets;
}

std::string clicks_run() {
  return replaced(kClicks, "{source}", TENON_SOURCE_DIR);
}

std::pair<std::string, std::string> hashes_of(const Scratch& scratch) {
  return {scratch.summary("weights_hash"), scratch.summary("state_hash")};
}

void await_checkpoint(const Scratch& scratch) {
  for (int i = 0; i < 3000; ++i) {
    const fs::path folder = scratch / "runs/tiny/latest/checkpoints";
    if (fs::exists(folder) && !fs::is_empty(folder)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no checkpoint within 15 s";
}

pid_t process_of(int rank, const Scratch& scratch) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (fs::read_symlink(entry.path() / "cwd", gone) != scratch.folder()) continue;
    const std::string environment = read_file(entry.path() / "environ");
    if (environment.find("TENON_RANK=" + std::to_string(rank) + '\0') != std::string::npos)
      return std::stoi(name);
  }
  return -1;
}

}  // namespace tenon::integration
