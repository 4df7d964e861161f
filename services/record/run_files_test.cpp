// Manifest, summary and plugin lock: round trips, exact keys, refusal of damaged files.
#include "record/run_files.hpp"
#include "base/process_facts.hpp"

#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <random>

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RunFilesTest : public ::testing::Test {
 protected:
  RunFilesTest() { files_.make_directories("/run"); }
  nlohmann::ordered_json json_of(const std::string& path) {
    return nlohmann::ordered_json::parse(files_.content(path));
  }
  static std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return keys;
  }
  testing::MemoryFiles files_;
};

RunResult example_result() {
  RunResult result;
  result.status = "completed";
  result.folder = "/run";
  result.steps = 400;
  result.samples = 6400;
  result.tokens = 819200;
  result.wall_s = 12.5;
  result.stall_s = 0.125;
  result.hidden_comm_share = std::nan("");
  result.peak_rss_mb = 101.5;
  result.peak_anonymous_mb = 88.25;
  result.bytes_sent = 1u << 30;
  result.metrics = {{"train/loss", 1.9}, {"val/loss", 0.1 + 0.2}};
  result.bytes_by_purpose = {{"gradient", 1u << 30}};
  result.quantized_operands = {{"nvfp4", 1200}};
  result.weights_hash = "00ff";
  result.state_hash = "ff00";
  return result;
}

TEST_F(RunFilesTest, SummaryHasTheDocumentedKeysInOrder) {
  write_summary(files_, example_result());
  const auto json = json_of("/run/summary.json");
  EXPECT_THAT(keys_of(json),
              ElementsAre("status", "steps", "samples", "tokens", "wall_s", "bytes_sent", "metrics",
                          "weights_hash", "state_hash", "deterministic", "peak_rss_mb", "peak_anonymous_mb",
                          "stall_s", "hidden_comm_share", "quantized_operands", "bytes_by_purpose"));
  EXPECT_EQ(json["metrics"]["val/loss"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(json["hidden_comm_share"].is_null());
}

TEST_F(RunFilesTest, SummaryReadsBack) {
  RunResult written = example_result();
  written.status = "failed";
  written.error = "rank 1: \"late\"\nsecond line";
  write_summary(files_, written);
  const RunResult read = read_summary(files_, "/run");
  EXPECT_EQ(read.status, "failed");
  EXPECT_EQ(read.exit_status, 1);
  EXPECT_EQ(read.error, written.error);
  EXPECT_EQ(read.steps, written.steps);
  EXPECT_EQ(read.samples, written.samples);
  EXPECT_EQ(read.tokens, written.tokens);
  EXPECT_EQ(read.wall_s, written.wall_s);
  EXPECT_EQ(read.stall_s, written.stall_s);
  EXPECT_TRUE(std::isnan(read.hidden_comm_share));
  EXPECT_EQ(read.peak_rss_mb, written.peak_rss_mb);
  EXPECT_EQ(read.peak_anonymous_mb, written.peak_anonymous_mb);
  EXPECT_EQ(read.bytes_sent, written.bytes_sent);
  EXPECT_EQ(read.metrics, written.metrics);
  EXPECT_EQ(read.bytes_by_purpose, written.bytes_by_purpose);
  EXPECT_EQ(read.quantized_operands, written.quantized_operands);
  EXPECT_EQ(read.weights_hash, written.weights_hash);
  EXPECT_EQ(read.state_hash, written.state_hash);
}

TEST_F(RunFilesTest, DamagedSummariesAreRefusedByKey) {
  write_summary(files_, example_result());
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  } const cases[] = {
      {"\"completed\"", "\"done\"", "'status': expected completed, interrupted or failed, found 'done'"},
      {"\"steps\": 400", "\"steps\": 4.5", "'steps': expected a 64-bit integer, found number"},
      {"\"steps\": 400", "\"steps\": 18446744073709551615", "'steps': expected a 64-bit integer"},
      {"\"bytes_sent\": 1", "\"bytes_sent\": -1", "'bytes_sent': expected a non-negative 64-bit integer"},
      {"\"wall_s\"", "\"wall\"", "'wall_s' is missing"},
      {"\"metrics\": {", "\"metrics\": 3, \"x\": {", "metrics: expected an object, found number"},
      {"{", "", "not valid JSON"},
  };
  const std::string whole = files_.content("/run/summary.json");
  for (const Case& c : cases) {
    std::string text = whole;
    ASSERT_NE(text.find(c.from), std::string::npos) << c.from;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    files_.overwrite("/run/summary.json", text);
    try {
      read_summary(files_, "/run");
      ADD_FAILURE() << "accepted: " << c.to;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message));
      EXPECT_THAT(error.what(), HasSubstr("/run/summary.json"));
    }
  }
}

Manifest example_manifest() {
  Manifest manifest = begin_manifest("tenon train \"a b.toml\"", 0);
  manifest.cpu_features = "avx2 avx512";
  manifest.kernels = "avx512";
  manifest.ranks = 2;
  manifest.threads = 3;
  manifest.seed = 1;
  manifest.seed_init = 2;
  manifest.seed_order = 18446744073709551615u;
  manifest.seed_rounding = 4;
  manifest.config_sha256 = "cafe";
  manifest.data = {{"/data/a.txt", "aa"}, {"/data/b.txt", "bb"}};
  manifest.libraries = {{"oneDNN", "2.6.3"}, {"OpenMP", "201511"}};
  manifest.attributes = {{"vocabulary", 256}, {"rows.0", 9}};
  manifest.init = {"runs/base/2", 40, "beef", "weights+optimizer", 5, 1, 2};
  manifest.segments.back().end = utc_now();
  manifest.segments.back().exit_reason = "interrupted: SIGTERM";
  manifest.segments.push_back({"tenon train --resume", 50, utc_now(), "", ""});
  return manifest;
}

TEST_F(RunFilesTest, ManifestReadsBack) {
  const Manifest written = example_manifest();
  write_manifest(files_, "/run", written);
  const Manifest read = read_manifest(files_, "/run");
  EXPECT_EQ(read.build.version, written.build.version);
  EXPECT_EQ(read.build.git, written.build.git);
  EXPECT_EQ(read.build.git_dirty, written.build.git_dirty);
  EXPECT_EQ(read.build.compiler, written.build.compiler);
  EXPECT_EQ(read.build.flags, written.build.flags);
  EXPECT_EQ(read.build.build_type, written.build.build_type);
  EXPECT_EQ(read.cpu_model, written.cpu_model);
  EXPECT_EQ(read.cpu_features, written.cpu_features);
  EXPECT_EQ(read.cpu_cores, written.cpu_cores);
  EXPECT_EQ(read.kernels, "avx512");
  EXPECT_EQ(read.ranks, 2);
  EXPECT_EQ(read.threads, 3);
  EXPECT_EQ(read.seed, 1u);
  EXPECT_EQ(read.seed_init, 2u);
  EXPECT_EQ(read.seed_order, 18446744073709551615u);
  EXPECT_EQ(read.seed_rounding, 4u);
  EXPECT_EQ(read.rng, "philox4x32-10");
  EXPECT_EQ(read.config_sha256, "cafe");
  ASSERT_EQ(read.data.size(), 2u);
  EXPECT_EQ(read.data[1].path, "/data/b.txt");
  EXPECT_EQ(read.data[1].sha256, "bb");
  EXPECT_THAT(read.libraries, ::testing::UnorderedElementsAreArray(written.libraries));
  EXPECT_EQ(read.environment, written.environment);
  EXPECT_EQ(read.init.from, "runs/base/2");
  EXPECT_EQ(read.init.step, 40);
  EXPECT_EQ(read.init.digest, "beef");
  EXPECT_EQ(read.init.what, "weights+optimizer");
  ASSERT_EQ(read.attributes.size(), 2u);
  EXPECT_EQ(read.attributes[1].name, "rows.0");
  EXPECT_EQ(read.attributes[1].value, 9);
  EXPECT_EQ(read.init.loaded, 5);
  EXPECT_EQ(read.init.drawn, 1);
  EXPECT_EQ(read.init.dropped, 2);
  ASSERT_EQ(read.segments.size(), 2u);
  EXPECT_EQ(read.segments[0].command_line, "tenon train \"a b.toml\"");
  EXPECT_EQ(read.segments[0].exit_reason, "interrupted: SIGTERM");
  EXPECT_EQ(read.segments[0].end, written.segments[0].end);
  EXPECT_EQ(read.segments[1].first_step, 50);
  const auto json = json_of("/run/manifest.json");
  EXPECT_EQ(json["command_line"], "tenon train --resume");
  EXPECT_EQ(json["start"], written.segments[0].start);
  EXPECT_EQ(json["exit_reason"], "");
}

TEST_F(RunFilesTest, ManifestKnowsItsBuildAndMachine) {
  ::setenv("OMP_NUM_THREADS", "2", 1);
  ::setenv("TENON_TEST_MARK", "here", 1);
  ::setenv("SECRET_TOKEN", "hidden", 1);
  const Manifest manifest = begin_manifest("", 0);
  EXPECT_THAT(manifest.build.version, MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(manifest.build.compiler, MatchesRegex("[A-Za-z]+ [0-9.]+"));
  EXPECT_THAT(manifest.build.flags, HasSubstr("-ffp-contract=off"));
  EXPECT_FALSE(manifest.build.git.empty());
  EXPECT_FALSE(manifest.cpu_model.empty());
  EXPECT_GE(manifest.cpu_cores, 1);
  EXPECT_THAT(manifest.segments.at(0).start, MatchesRegex("2[0-9]{3}-[0-9-]{5}T[0-9:]{8}\\.[0-9]{3}Z"));
  write_manifest(files_, "/run", manifest);
  const std::string text = files_.content("/run/manifest.json");
  EXPECT_THAT(text, HasSubstr("\"OMP_NUM_THREADS\": \"2\""));
  EXPECT_THAT(text, HasSubstr("\"TENON_TEST_MARK\": \"here\""));
  EXPECT_EQ(text.find("hidden"), std::string::npos);
}

TEST_F(RunFilesTest, MutatedFilesNeverCrashTheReaders) {
  write_manifest(files_, "/run", example_manifest());
  write_summary(files_, example_result());
  const std::string manifest = files_.content("/run/manifest.json"),
                    summary = files_.content("/run/summary.json");
  std::mt19937 random(3);
  const auto mutate = [&](std::string text) {
    if (random() % 2 == 0) text.resize(random() % text.size());
    for (int flips = static_cast<int>(random() % 5); flips > 0 && !text.empty(); --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    return text;
  };
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    files_.overwrite("/run/manifest.json", mutate(manifest));
    files_.overwrite("/run/summary.json", mutate(summary));
    try {
      EXPECT_FALSE(read_manifest(files_, "/run").segments.empty());
    } catch (const Error&) {
      ++refused;
    }
    try {
      EXPECT_FALSE(read_summary(files_, "/run").status.empty());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

TEST_F(RunFilesTest, PluginLockIsSortedToml) {
  write_plugin_lock(files_, "/run",
                    {{"tenon.sync_basic", "0.1.0", "/lib/a \"b\".so", "beef", "epoch 0\nx86_64"},
                     {"acme.lion", "1.2.3", "", "", ""}});
  EXPECT_EQ(files_.content("/run/plugins.lock"),
            "# Plugins that this run loaded.\n"
            "\n[[plugin]]\nid = \"acme.lion\"\nversion = \"1.2.3\"\nfile = \"\"\nsha256 = \"\"\nabi = \"\"\n"
            "first_step = 0\n"
            "\n[[plugin]]\nid = \"tenon.sync_basic\"\nversion = \"0.1.0\"\nfile = \"/lib/a \\\"b\\\".so\"\n"
            "sha256 = \"beef\"\nabi = \"epoch 0\\nx86_64\"\nfirst_step = 0\n");
  const std::vector<LockedPlugin> back = read_plugin_lock(files_, "/run");
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[1].file, "/lib/a \"b\".so");
  EXPECT_EQ(back[1].abi, "epoch 0\nx86_64");
  EXPECT_TRUE(read_plugin_lock(files_, "/nowhere").empty());
  files_.write_text_atomically("/run/plugins.lock", "[[plugin]]\nid = 3\n");
  EXPECT_THROW(read_plugin_lock(files_, "/run"), Error);
}

TEST(ContinuedPlugins, KeepWhatTrainedBeforeAndNameWhatWasReplaced) {
  const std::vector<LockedPlugin> had{{"acme.a", "1.0.0", "a.so", "aaaa", ""},
                                      {"acme.b", "1.0.0", "b.so", "bbbb", ""}};
  std::vector<std::string> replaced;
  const auto same = continued_plugins(had, had, 7, replaced);
  EXPECT_EQ(same.size(), 2U);
  EXPECT_TRUE(replaced.empty());
  // Rebuilt, then put back: three entries of one plugin.
  auto all = continued_plugins(
      had, {{"acme.a", "1.0.0", "a.so", "cccc", ""}, {"acme.c", "1.0.0", "c.so", "dddd", ""}}, 7, replaced);
  ASSERT_EQ(replaced.size(), 1U);
  EXPECT_EQ(replaced[0],
            "plugin acme.a was version 1.0.0 (SHA-256 aaaa, a.so) and is version 1.0.0 (SHA-256 cccc, a.so)");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[2].first_step, 7);
  all = continued_plugins(all, had, 9, replaced);
  EXPECT_EQ(replaced.size(), 2U);
  EXPECT_EQ(all.size(), 5U);
}

TEST(ProcessFacts, PeakMemoryGrowsWithUse) {
  const double before = peak_rss_mb();
  EXPECT_GT(before, 1);
  std::vector<char> block(std::size_t{64} << 20);
  for (std::size_t i = 0; i < block.size(); i += 4096) block[i] = static_cast<char>(i);
  EXPECT_GT(peak_rss_mb(), before + 32);
}

TEST(ProcessFacts, FieldsOfProcFiles) {
  const std::string text = "model\t\t: 85\nmodel name\t: Fast CPU @ 3 GHz \r\nVmHWM:\t  2048 kB\nempty:\n";
  EXPECT_EQ(proc_field(text, "model name"), "Fast CPU @ 3 GHz");
  EXPECT_EQ(proc_field(text, "model"), "85");
  EXPECT_EQ(proc_field(text, "VmHWM"), "2048 kB");
  EXPECT_EQ(proc_field(text, "empty"), "");
  EXPECT_EQ(proc_field(text, "absent"), "");
}

TEST(ProcessFacts, LimitsAreThoseOfAllControlGroupsUpwards) {
  using ::testing::ElementsAre;
  EXPECT_THAT(control_group_folders("0::/user.slice/job.scope\n", "memory"),
              ElementsAre("/sys/fs/cgroup/user.slice/job.scope", "/sys/fs/cgroup/user.slice",
                          "/sys/fs/cgroup", "/sys/fs/cgroup/memory"));
  EXPECT_THAT(control_group_folders("5:cpu,cpuacct:/a\n4:memory:/b\n1:name=systemd:/c\n", "cpu"),
              ElementsAre("/sys/fs/cgroup", "/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu"));
  EXPECT_THAT(control_group_folders("4:memory:/\n0::/\n", "memory"),
              ElementsAre("/sys/fs/cgroup", "/sys/fs/cgroup/memory"));
  for (const char* nothing : {"", "\n", "memory", "::", "0::"})
    EXPECT_THAT(control_group_folders(nothing, "memory"),
                ElementsAre("/sys/fs/cgroup", "/sys/fs/cgroup/memory"))
        << nothing;
  EXPECT_GT(usable_memory_bytes(), 0);
}

TEST(ProcessFacts, ProcessorsThatAControlGroupAllows) {
  EXPECT_EQ(quota_cores("200000 100000\n"), 2);
  EXPECT_EQ(quota_cores("150000 100000\n"), 2);
  EXPECT_EQ(quota_cores("1000 100000\n"), 1);
  for (const char* no_limit : {"max 100000\n", "", "max", "0 100000", "100000", "-1 100000", "100000 0"})
    EXPECT_EQ(quota_cores(no_limit), 0) << no_limit;
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace tenon
