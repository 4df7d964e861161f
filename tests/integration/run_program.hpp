// Runs the program `tenon` as a child and catches how it ended; a scratch folder with a run of under a
// second, and what it leaves there; the processes of `tenon launch`. Serves the tests of whole runs. It knows
// nothing of what is inside the program.
#pragma once

#include "test_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::integration {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path);
void write_file(const fs::path& path, const std::string& text);
/// `text` with every `from` replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to);
/// Relative path -> contents of every file below a folder; links by their targets.
std::map<std::string, std::string> tree(const fs::path& folder);
/// Names of files that differ between two trees.
std::vector<std::string> changes(const fs::path& folder, const std::map<std::string, std::string>& before);

/// End of a child, and its output.
struct Ended {
  int status = -1;  ///< exit status, -1 if a signal ended it
  int signal = 0;
  std::string out, err;
};

struct Command {
  std::vector<std::string> arguments;
  fs::path folder;                                      ///< working directory
  std::map<std::string, std::string> environment = {};  ///< added to an environment without TENON_ variables
  rlim_t largest_file = RLIM_INFINITY;                  ///< bytes; beyond it SIGXFSZ stops the child
  bool own_group = false;                               ///< signals then go to all processes that it starts
  std::vector<std::string> through = {};                ///< a program and its words that start this one
  std::vector<int> closed = {};                         ///< descriptors
};

/// A running child. Destroying it kills it.
class Child {
 public:
  explicit Child(const Command& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }
  /// Sends to all of its group, of which it is the first.
  void send_all(int signal) const { ::kill(-pid_, signal); }
  /// Returns whether it has ended; wait() says how.
  bool ended() const;
  pid_t pid() const { return pid_; }

  /// Waits for the end; a child that exceeds the deadline is killed and reported as such.
  Ended wait(double seconds = 60);

 private:
  fs::path out_, err_;
  pid_t pid_ = -1;
};

/// A fresh folder in the build tree with data and the configuration run.toml; removed with the object.
class Scratch {
 public:
  /// 3000 bytes of text, one layer of width 16, six slots, a checkpoint every second slot that training waits
  /// for.
  Scratch();
  ~Scratch() { fs::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  fs::path operator/(const std::string& name) const { return folder_ / name; }
  const fs::path& folder() const { return folder_; }

  Ended run(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) const;
  /// `tenon train run.toml --quiet ...`
  Ended train(std::vector<std::string> more = {}, std::map<std::string, std::string> environment = {}) const;
  /// The value of `key` in summary.json of an attempt, as written there.
  std::string summary(const std::string& key, const std::string& attempt = "latest") const;
  std::string log(const std::string& attempt = "latest") const {
    return read_file(folder_ / "runs/tiny" / attempt / "log.rank0.txt");
  }
  /// `text` with machine-dependent parts replaced: {dir}, {build}, {source}, {n}, {ids}.
  std::string plain(std::string text) const;

  static constexpr const char* kRun = R"([run]
name = "tiny"
steps = 6
log_every = 1

[device]
type = "cpu"
threads = 1

[data]
type = "text"
path = "text.txt"
context = 16
batch = 2

[model]
type = "gpt_neo"
layers = 1
width = 16
heads = 2

[optimizer]
type = "adamw"
lr = 1e-2

[recovery]
type = "full"
every = 2
async = false
)";

 private:
  fs::path folder_;
};

/// A DLRM on UCI Adult, 24 slots of 96 samples for any number of replicas: a run with row tables.
std::string clicks_run();

/// Edits under which the shipped configuration `name` names its data, and a device of every build: click logs
/// are fetched and sums are made by their users, and any `file` will do where keys alone are read.
std::vector<std::string> data_of_shipped(const std::string& name, const std::string& file);

// Processes of `tenon launch`, as seen from outside by a test.

/// Hashes of the weights and of the whole state.
std::pair<std::string, std::string> hashes_of(const Scratch& scratch);

/// Waits until the newest attempt has a checkpoint, so that the run has started.
void await_checkpoint(const Scratch& scratch);

/// Process of rank `rank`, by its environment.
pid_t process_of(int rank, const Scratch& scratch);

}  // namespace tenon::integration
