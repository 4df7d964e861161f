// For tests and benchmarks of transports of processes: a rendezvous over files of a shared folder, for
// threads of one process and for processes of one machine alike. Header only.
#pragma once

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::testing {

class FolderRendezvous final : public Rendezvous {
 public:
  /// The folder exists and is empty at first; each run has its own.
  FolderRendezvous(std::string folder, int rank, int ranks, double deadline_s = 30)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks), deadline_s_(deadline_s) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::vector<std::string> exchange(const std::string& text) override {
    const int round = rounds_++;
    const std::string mine = path(round, rank_);
    std::ofstream(mine + ".part") << text;
    std::filesystem::rename(mine + ".part", mine);
    std::vector<std::string> texts;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s_);
    for (int rank = 0; rank < ranks_; ++rank) {
      while (!std::filesystem::exists(path(round, rank))) {
        if (std::chrono::steady_clock::now() > limit)
          throw DeadlineError("rank " + std::to_string(rank) + " did not come to the rendezvous");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::ifstream file(path(round, rank), std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return texts;
  }

 private:
  std::string path(int round, int rank) const {
    return folder_ + "/" + std::to_string(round) + "." + std::to_string(rank);
  }
  const std::string folder_;
  const int rank_, ranks_;
  const double deadline_s_;
  int rounds_ = 0;
};

/// An empty temporary folder, removed with the object.
class RendezvousFolder {
 public:
  RendezvousFolder() {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tenon_rendezvous_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) fail_run("cannot make " + pattern);
    path_ = pattern;
  }
  ~RendezvousFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tenon::testing
