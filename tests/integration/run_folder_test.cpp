// A run and its environment: data that changed during the run, folders that cannot be written, a second
// process, a clock that is set back.
#include "base/digest_cache.hpp"
#include "run_program.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <regex>
#include <sstream>
#include <tenon/files.hpp>
#include <thread>
#include <utility>

namespace tenon::integration::run_folder_test {
namespace {

std::string sha256(const fs::path& path) {
  return sha256_of_file(*make_posix_files(), path.string());
}

TEST(ChangedData, IsRefusedWithBothChecksumsAndTheAttemptStaysAsItWas) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const std::string text = read_file(scratch / "text.txt"), then = sha256(scratch / "text.txt");
  std::string other = text;
  other[1500] = other[1500] == 'x' ? 'y' : 'x';
  write_file(scratch / "text.txt", other);
  const auto before = tree(scratch / "runs/tiny/1");

  const Ended ended = scratch.train({"--resume"});
  EXPECT_EQ(scratch.plain(ended.err),
            "tenon: runs/tiny/1/checkpoints/step-6 was trained on other data: '{dir}/text.txt' had SHA-256 " +
                then + ", and now it has " + sha256(scratch / "text.txt") +
                ". Nothing was changed: bring the old data back, or start a new attempt without --resume\n");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(changes(scratch / "runs/tiny/1", before), std::vector<std::string>());

  // The old bytes under another name are the old data.
  write_file(scratch / "moved.txt", text);
  EXPECT_EQ(scratch.train({"--resume", "--set", "data.path=moved.txt"}).status, 0);
}

TEST(ChangedData, AnotherNumberOfFilesIsOtherData) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  fs::copy_file(scratch / "text.txt", scratch / "val.txt");
  const Ended ended = scratch.train({"--resume", "--set", "data.val_path=val.txt"});
  EXPECT_EQ(ended.err,
            "tenon: runs/tiny/1/checkpoints/step-6 was trained on other data: on 1 files, and this run has "
            "2. Nothing "
            "was changed: bring the old data back, or start a new attempt without --resume\n");
  EXPECT_EQ(ended.status, 2);
}

TEST(ReplacedPlugins, AreRefusedWithBothDigestsUnlessAccepted) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const fs::path lock = scratch / "runs/tiny/1/plugins.lock";
  const std::string text = read_file(lock);
  const std::size_t plugin = text.find("id = \"tenon.adamw\"");
  ASSERT_NE(plugin, std::string::npos);
  const std::size_t at = text.find("sha256 = \"", plugin) + 10;
  const std::string now = text.substr(at, 16), then = "0123456789abcdef";
  // As a run has it that a build before trained.
  write_file(lock, replaced(text, text.substr(at, 64), then + text.substr(at + 16, 48)));
  const auto before = tree(scratch / "runs/tiny/1");

  const Ended refused = scratch.train({"--resume", "--set", "run.steps=8"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              ::testing::AllOf(::testing::HasSubstr("plugin tenon.adamw was version 0.1.0 (SHA-256 " + then),
                               ::testing::HasSubstr("and is version 0.1.0 (SHA-256 " + now),
                               ::testing::HasSubstr("--accept-plugins")));
  EXPECT_EQ(changes(scratch / "runs/tiny/1", before), std::vector<std::string>());

  const Ended accepted = scratch.train({"--resume", "--accept-plugins", "--set", "run.steps=8"});
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  const std::string both = read_file(lock);
  EXPECT_THAT(both, ::testing::AllOf(::testing::HasSubstr(then), ::testing::HasSubstr(now),
                                     ::testing::HasSubstr("first_step = 6")));
  EXPECT_THAT(scratch.log(), ::testing::HasSubstr("accepted with --accept-plugins: plugin tenon.adamw"));
  EXPECT_EQ(scratch.train({"--resume", "--set", "run.steps=9"}).status, 0)
      << "it is the plugin of this run now";
  EXPECT_EQ(scratch.train({"--accept-plugins"}).status, 2);
}

// A run believes the cache of digests, so that it can record a digest that no run computed; --verify finds
// it.
TEST(KeptDigests, AreBelievedUnlessVerified) {
  const Scratch scratch;
  const std::map<std::string, std::string> home = {{"XDG_CACHE_HOME", (scratch / "cache").string()}};
  const fs::path cache = scratch / "cache/tenon/digests", lock = scratch / "runs/tiny/latest/plugins.lock";
  ASSERT_EQ(scratch.train({}, home).status, 0);
  const std::string text = read_file(lock);
  auto digests = base::parse_digests(read_file(cache));
  ASSERT_TRUE(digests.has_value()) << read_file(cache);
  const auto device = std::find_if(digests->begin(), digests->end(), [&](const base::KeptDigest& kept) {
    return text.find(kept.sha256) != std::string::npos;
  });
  ASSERT_NE(device, digests->end()) << "of no plugin of the run";

  ASSERT_EQ(scratch.train({"--verify"}, home).status, 0);
  EXPECT_EQ(read_file(lock), text);
  const std::string honest = std::exchange(device->sha256, std::string(64, 'f'));
  const std::string lying = base::digest_text(*digests);
  write_file(cache, lying);
  ASSERT_EQ(scratch.train({}, home).status, 0);
  EXPECT_THAT(read_file(lock), ::testing::HasSubstr(std::string(64, 'f')));
  for (const char* command : {"train", "check"}) {
    const Ended ended = scratch.run({command, "run.toml", "--verify"}, home);
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.err, ::testing::AllOf(::testing::HasSubstr("its SHA-256 is " + honest),
                                            ::testing::HasSubstr(cache.string()),
                                            ::testing::HasSubstr("remove the cache")))
        << command;
  }
  fs::remove_all(scratch / "cache");
  write_file(scratch / "cache", "a file in the place of the folder");
  ASSERT_EQ(scratch.train({}, home).status, 0);
  EXPECT_EQ(read_file(lock), text);
}

TEST(KeptDigests, LieInTheHomeFolderWhereNoOtherIsNamed) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train({}, {{"XDG_CACHE_HOME", "relative"}, {"HOME", (scratch / "home").string()}}).status,
            0);
  EXPECT_TRUE(base::parse_digests(read_file(scratch / "home/.cache/tenon/digests")).has_value());
  EXPECT_FALSE(fs::exists(scratch / "relative")) << "which the specification of base folders has ignored";
  EXPECT_EQ(scratch.train({}, {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}).status, 0);
}

// Paths that a file says count from it, and what a run records is absolute: any command reads the run again,
// from any folder.
TEST(RelativePaths, AreThoseOfTheFileThatSaysThem) {
  const Scratch scratch;
  fs::create_directories(scratch / "project/mine");
  fs::create_directories(scratch / "elsewhere");
  fs::copy_file(scratch / "text.txt", scratch / "project/mine/words.txt");
  write_file(scratch / "project/run.toml",
             replaced(read_file(scratch / "run.toml"), "\"text.txt\"", "\"mine/words.txt\"") +
                 "\n[plugins]\npaths = [\"mine\"]\n");
  const auto from = [&](const char* folder, std::vector<std::string> words) {
    return Child({.arguments = std::move(words), .folder = scratch / folder}).wait();
  };
  const Ended trained = from("elsewhere", {"train", "../project/run.toml", "--quiet"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string run = (scratch / "elsewhere/runs/tiny/1").string();
  const std::string resolved = read_file(run + "/config.resolved.toml");
  EXPECT_THAT(resolved,
              ::testing::AllOf(::testing::HasSubstr((scratch / "project/mine/words.txt").string()),
                               ::testing::HasSubstr("[\"" + (scratch / "project/mine").string() + "\"]")));
  for (const char* folder : {"elsewhere", "project", "."}) {
    const Ended evaluated = from(folder, {"evaluate", run});
    EXPECT_EQ(evaluated.status, 0) << folder << ": " << evaluated.err;
  }
  const Ended again = from(".", {"train", run + "/config.resolved.toml", "--quiet", "--run-dir", "again"});
  EXPECT_EQ(again.status, 0) << again.err;
  fs::remove(scratch / "project/mine/words.txt");
  EXPECT_THAT(from("elsewhere", {"check", "../project/run.toml"}).err,
              ::testing::ContainsRegex(
                  "run.toml:[0-9]+:[0-9]+: option 'path' of dataset.text: cannot find "
                  "'mine/words.txt'; tried\n  .*project/mine/words.txt\n  .*elsewhere/mine/words.txt"));
}

// Any part may be on another disk: the run's folder, an attempt, its checkpoints, one of these.
TEST(RunFolder, WhatIsLinkedIsSeenByEveryCommand) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  fs::create_directories(scratch / "disk");
  const auto move = [&](const std::string& what, const std::string& name) {
    fs::rename(scratch / what, scratch / ("disk/" + name));
    fs::create_directory_symlink(scratch / ("disk/" + name), scratch / what);
  };
  move("runs/tiny/1/checkpoints/step-6", "generation");
  move("runs/tiny/1/checkpoints", "checkpoints");
  move("runs/tiny/1", "attempt");
  move("runs/tiny", "run");
  const std::vector<std::vector<std::string>> commands{
      {"evaluate", "runs/tiny"},
      {"evaluate", "runs/tiny/1", "--step", "6"},
      {"compare", "runs/tiny/latest", "runs/tiny/1"},
      {"report", "runs/tiny"},
      {"report", "runs"},
      {"generate", "runs/tiny", "--prompt", "a", "--tokens", "1"},
      {"export", "runs/tiny", "--out", "m.safetensors"},
  };
  for (const auto& words : commands) {
    const Ended ended = scratch.run(words);
    EXPECT_EQ(ended.status, 0) << words[0] << ": " << ended.err;
  }
  EXPECT_THAT(scratch.run({"evaluate", "runs/tiny"}).out, ::testing::StartsWith("step 6 of runs/tiny/1, "));
  EXPECT_EQ(scratch.train({"--resume", "--set", "run.steps=8"}).status, 0);
  const std::string log = scratch.log("1"), slot_4 = "checkpoint of slot 4 saved";
  EXPECT_EQ(log.find(slot_4), log.rfind(slot_4)) << "it went on from slot 6";
  EXPECT_EQ(scratch.train().status, 0);
  EXPECT_EQ(fs::read_symlink(scratch / "runs/tiny/latest"), "2");
  EXPECT_TRUE(fs::is_symlink(scratch / "runs/tiny/1"));
}

// No process, root included, can make a folder in /proc: it simulates a disk that is mounted read-only.
TEST(RunFolder, ThatCannotBeMadeIsAnErrorBeforeTraining) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--run-dir", "/proc/tenon/runs"});
  EXPECT_EQ(ended.err,
            "tenon: the run's folder '/proc/tenon/runs' cannot be used: cannot make folder /proc/tenon: No "
            "such file or "
            "directory. Nothing was trained; make room, or choose another folder with --run-dir\n");
  EXPECT_EQ(ended.status, 1);
}

TEST(RunFolder, ThatIsAFileIsAnErrorBeforeTraining) {
  const Scratch scratch;
  const auto before = tree(scratch.folder());
  const Ended ended = scratch.train({"--run-dir", "text.txt"});
  EXPECT_EQ(ended.err,
            "tenon: the run's folder 'text.txt' cannot be used: cannot make folder text.txt: File exists. "
            "Nothing was "
            "trained; make room, or choose another folder with --run-dir\n");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(changes(scratch.folder(), before), std::vector<std::string>());
}

// A limit on the size of files simulates a full disk.
TEST(RunFolder, ThatIsFullIsAnErrorBeforeTraining) {
  const Scratch scratch;
  const Ended ended = Child({{"train", "run.toml", "--quiet"}, scratch.folder(), {}, 1024}).wait();
  EXPECT_EQ(std::regex_replace(ended.err, std::regex("write [0-9]+ bytes"), "write {n} bytes"),
            "tenon: the run's folder 'runs/tiny' cannot be used: cannot write {n} bytes to "
            "runs/tiny/1/config.resolved.toml.tmp: File too large. Nothing was trained; make room, or choose "
            "another "
            "folder with --run-dir\n");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(scratch.summary("steps"), "no steps");
  // With room again the next attempt runs.
  EXPECT_EQ(scratch.train().status, 0);
  EXPECT_EQ(fs::read_symlink(scratch / "runs/tiny/latest"), "2");
}

/// The first line of a file, waited for.
std::string line_of(const fs::path& path) {
  for (int tries = 0; tries < 3000; ++tries) {
    const std::string text = read_file(path);
    if (text.find('\n') != std::string::npos) return text.substr(0, text.find('\n'));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << path << " did not appear";
  return {};
}

TEST(TwoProcesses, OnOneAttemptAreRefusedByPidUntilTheFirstIsGone) {
  const Scratch scratch;
  Child first({{"train", "run.toml", "--quiet", "--set", "run.steps=10000000"}, scratch.folder(), {}});
  const std::string pid = line_of(scratch / "runs/tiny/1/.lock");
  EXPECT_EQ(pid, std::to_string(first.pid()));

  // Another attempt is independent.
  EXPECT_EQ(scratch.run({"train", "run.toml", "--quiet", "--run-dir", "runs/other"}).status, 0);
  const Ended second = scratch.train({"--resume"});
  EXPECT_EQ(second.err,
            "tenon: process " + pid +
                " is writing to 'runs/tiny/1'; wait for it, or start a new attempt without --resume\n");
  EXPECT_EQ(second.status, 1);

  first.send(SIGKILL);
  first.wait();
  EXPECT_TRUE(fs::exists(scratch / "runs/tiny/1/.lock"));
  const Ended third = scratch.train({"--resume", "--set", "run.steps=6"});
  EXPECT_EQ(third.status, 0) << third.err;
  EXPECT_FALSE(fs::exists(scratch / "runs/tiny/1/.lock"));
}

#ifdef TENON_SET_BACK_CLOCK
TEST(SetBackClock, F12_LeavesTheTimesOfARunAscending) {
  const Scratch scratch;
  const std::map<std::string, std::string> preload{{"LD_PRELOAD", TENON_SET_BACK_CLOCK}};
  ASSERT_EQ(scratch.train({"--set", "run.steps=3"}, preload).status, 0);
  ASSERT_EQ(scratch.train({"--resume"}, preload).status, 0);
  const std::string manifest = read_file(scratch / "runs/tiny/1/manifest.json");
  std::smatch times;
  ASSERT_TRUE(
      std::regex_search(manifest, times, std::regex("\"start\": \"([^\"]+)\",\\s*\"end\": \"([^\"]+)\"")));
  EXPECT_LT(times[2].str(), times[1].str()) << "the run saw the machine's own clock";

  std::istringstream lines(read_file(scratch / "runs/tiny/1/metrics.jsonl"));
  double before = 0;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::smatch found;
    ASSERT_TRUE(std::regex_search(line, found, std::regex("\"wall_s\": ([-0-9.e+]+)"))) << line;
    const double wall_s = std::stod(found[1]);
    EXPECT_GE(wall_s, before) << line;
    EXPECT_LT(wall_s, 60) << line;
    before = wall_s;
  }
  EXPECT_GT(count, 6);
}
#endif

}  // namespace
}  // namespace tenon::integration::run_folder_test
