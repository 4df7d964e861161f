// Folders of runs for the tests of reports: the files of DESIGN's run folder, written by hand.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tenon::report {

class RunFolders : public ::testing::Test {
 protected:
  RunFolders()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-report-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~RunFolders() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary) << text;
  }
  static std::string line(int step, const char* split, const char* name, double value) {
    return "{\"step\": " + std::to_string(step) + ", \"split\": \"" + split + "\", \"name\": \"" + name +
           "\", \"value\": " + std::to_string(value) + ", \"wall_s\": " + std::to_string(0.5 * step) +
           ", \"samples\": " + std::to_string(16 * step) + ", \"tokens\": " + std::to_string(160 * step) +
           ", \"bytes_sent\": 0}\n";
  }
  /// An attempt that ended: losses fall from `first` by 0.1 a step.
  std::string run(const std::string& base, double first = 3.0, const std::string& lr = "0.01",
                  const std::string& sha = "aa") const {
    const std::string at = base + "/1/";
    std::string metrics;
    for (int step = 1; step <= 5; ++step) metrics += line(step, "train", "loss", first - 0.1 * step);
    metrics += line(5, "val", "loss", first);
    write(at + "metrics.jsonl", metrics);
    write(at + "config.resolved.toml",
          "[run]\nname = \"" + std::filesystem::path(base).filename().string() +
              "\"  # default\nsteps = 5  # r.toml:2:9\n\n[optimizer]\nlr = " + lr +
              "  # r.toml:9:6\ntext = \"a # <b>\"  # r.toml:10:8\n\n[[observe]]\ntype = \"csv\"  # "
              "r.toml:12:8\n");
    write(at + "manifest.json",
          "{\"program\": {\"version\": \"0.1.0\"}, \"kernels\": \"avx2\", \"threads\": 2, \"ranks\": 1, "
          "\"seeds\": {\"seed\": 7}, \"data\": [{\"path\": \"/d/" +
              base + "\", \"sha256\": \"" + sha + "\"}], \"exit_reason\": \"completed\"}");
    write(
        at + "plugins.lock",
        "[[plugin]]\nid = \"tenon.sgd\"\nversion = \"0.1.0\"\nfile = \"/x\"\nsha256 = \"11\"\nabi = \"\"\n");
    write(at + "summary.json",
          "{\"status\": \"completed\", \"steps\": 5, \"samples\": 80, \"tokens\": 800, \"wall_s\": 2.5, "
          "\"bytes_sent\": 0, \"metrics\": {}, \"weights_hash\": \"w" +
              lr + "\", \"state_hash\": \"s\"}");
    return (folder_ / base / "1").string();
  }

  std::filesystem::path folder_;
};

}  // namespace tenon::report
