// A request to stop never loses work, for any sender, any number of requests, and any activity of the run.
// Also other effects of a system on a process that it starts: limits, and closed descriptors.
#include "run_program.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

namespace tenon::integration::stop_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;
using std::chrono::milliseconds;

/// Saves only at the end, which is far.
std::string endless(const std::string& more = "") {
  return replaced(replaced(Scratch::kRun, "steps = 6", "steps = 1000000"), "every = 2", "every = 1000000") +
         more;
}

/// The whole validation split takes a minute.
std::string endless_evaluation(const std::string& more = "") {
  return replaced(replaced(endless(more), "batch = 2", "batch = 1\nval_fraction = 0.9"), "\"text.txt\"",
                  "\"long.txt\"");
}

void write_long_text(const Scratch& scratch) {
  std::string text;
  for (int i = 0; text.size() < 8'000'000; ++i) text += std::to_string(i * 7919) + " words of a long text\n";
  write_file(scratch / "long.txt", text);
}

bool within(double seconds, const std::function<bool()>& holds) {
  for (int i = 0; i < static_cast<int>(seconds * 100); ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

fs::path newest(const Scratch& scratch) {
  return scratch / "runs/tiny/latest";
}

void await_metrics(const Scratch& scratch) {
  EXPECT_TRUE(within(30, [&] { return !read_file(newest(scratch) / "metrics.jsonl").empty(); }));
}

void await_phase(const Scratch& scratch, const std::string& log, const std::string& phase) {
  EXPECT_TRUE(within(30, [&] { return read_file(scratch / log).find(phase) != std::string::npos; }));
}

/// Slots of the checkpoints that are complete.
std::vector<int> checkpoints(const Scratch& scratch) {
  std::vector<int> slots;
  if (!fs::exists(newest(scratch) / "checkpoints")) return slots;
  for (const auto& entry : fs::directory_iterator(newest(scratch) / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos)
      slots.push_back(std::stoi(name.substr(5)));
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

void expect_kept(const Scratch& scratch, const std::string& what) {
  EXPECT_EQ(scratch.summary("status"), "\"interrupted\"") << what;
  const std::vector<int> kept = checkpoints(scratch);
  ASSERT_EQ(kept.size(), 1u) << what;
  EXPECT_EQ(std::to_string(kept[0]), scratch.summary("steps")) << what;
}

std::string two_ranks(const std::string& sync) {
  return "\n[parallel]\nranks = 2\n\n[transport]\ntype = \"thread\"\n\n[sync]\ntype = " + sync + "\n";
}

const std::string kTwoRanks = two_ranks("\"ddp\"");

Words launched(const std::string& transport, Words more = {}) {
  Words words{"launch", "-n", "2", "--transport", transport, "--", "train", "run.toml", "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// ---- senders

struct Sender {
  const char* name;
  void (*send)(const Child& child, const Scratch& scratch);
};

const Sender kSenders[] = {
    {"Ctrl-C at the launcher", [](const Child& child, const Scratch&) { child.send(SIGINT); }},
    {"Ctrl-C of a terminal", [](const Child& child, const Scratch&) { child.send_all(SIGINT); }},
    {"a scheduler, to all", [](const Child& child, const Scratch&) { child.send_all(SIGTERM); }},
    {"a scheduler, to each rank",
     [](const Child&, const Scratch& scratch) {
       for (const int rank : {0, 1}) ::kill(process_of(rank, scratch), SIGTERM);
     }},
    {"a supervisor, to one rank",
     [](const Child&, const Scratch& scratch) { ::kill(process_of(1, scratch), SIGTERM); }},
};

TEST(Stop, OfRankProcessesIsOneCheckpoint) {
  for (const Sender& sender : kSenders) {
    const Scratch scratch;
    write_file(scratch / "run.toml", endless(kTwoRanks));
    Child child({.arguments = launched("socket"), .folder = scratch.folder(), .own_group = true});
    await_metrics(scratch);
    sender.send(child, scratch);
    const Ended ended = child.wait(30);
    EXPECT_EQ(ended.status, 0) << sender.name << "\n" << ended.err;
    expect_kept(scratch, sender.name);
  }
}

class StopUnderMpi : public ::testing::TestWithParam<const char*> {};

TEST_P(StopUnderMpi, IsOneCheckpoint) {
  const std::string program = std::string("mpirun.") + GetParam();
  const fs::path plugin = fs::path(TENON_BINARY_DIR) / "lib/tenon/plugins" /
                          ("tenon_transport_" + std::string(GetParam()) + ".so");
  if (!fs::exists(plugin) || std::system(("command -v " + program + " >/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no " << GetParam() << " on this machine";
  }
  for (const int signal : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    write_file(scratch / "run.toml", endless(kTwoRanks));
    Child child({.arguments = launched(GetParam()), .folder = scratch.folder(), .own_group = true});
    await_metrics(scratch);
    child.send_all(signal);
    child.wait(30);  // its status is that of mpirun, which reports that it was ended
    EXPECT_TRUE(within(10, [&] { return !checkpoints(scratch).empty(); }));
    expect_kept(scratch, std::string(GetParam()) + " " + std::to_string(signal));
  }
}

INSTANTIATE_TEST_SUITE_P(Vendors, StopUnderMpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Stop, AskedForTwiceIsAskedForOnce) {
  for (int round = 0; round < 10; ++round) {
    const Scratch scratch;
    write_file(scratch / "run.toml", endless());
    Child child({.arguments = {"train", "run.toml", "--quiet"}, .folder = scratch.folder()});
    await_metrics(scratch);
    child.send(SIGTERM);
    std::this_thread::sleep_for(milliseconds(round == 0 ? 0 : 1 << (round / 3)));
    child.send(round % 2 == 0 ? SIGTERM : SIGINT);
    const Ended ended = child.wait(30);
    EXPECT_EQ(ended.status, 0) << ended.err;
    expect_kept(scratch, "round " + std::to_string(round));
  }
  {  // signals its child, and then its group
    const Scratch scratch;
    write_file(scratch / "run.toml", endless());
    const Ended ended = Child({.arguments = {"train", "run.toml", "--quiet"},
                               .folder = scratch.folder(),
                               .own_group = true,
                               .through = {"timeout", "3"}})
                            .wait(60);
    EXPECT_EQ(ended.status, 124) << ended.err;
    expect_kept(scratch, "timeout");
  }
}

TEST(Stop, AResumeEndsInTheBitsOfTheWholeRun) {
  for (const std::string& sync : {std::string("\"ddp\""), std::string("\"local_sgd\"\ninterval = 4")}) {
    const Scratch whole, stopped;
    const std::string toml = replaced(endless(two_ranks(sync)), "steps = 1000000", "steps = 600");
    for (const Scratch* scratch : {&whole, &stopped}) write_file(*scratch / "run.toml", toml);
    ASSERT_EQ(whole.train().status, 0);
    Child child({.arguments = {"train", "run.toml", "--quiet"}, .folder = stopped.folder()});
    await_metrics(stopped);
    child.send(SIGTERM);
    ASSERT_EQ(child.wait(30).status, 0);
    EXPECT_EQ(stopped.summary("status"), "\"interrupted\"");
    // The hashes of what was saved: a resume that trains nothing has the same.
    const auto cut = hashes_of(stopped);
    const std::string steps = stopped.summary("steps");
    ASSERT_EQ(stopped.train({"--resume", "--set", "run.steps=" + steps}).status, 0);
    EXPECT_EQ(hashes_of(stopped), cut);
    const Ended resumed = stopped.train({"--resume"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(hashes_of(stopped), hashes_of(whole)) << sync;
  }
}

// ---- interrupted activities

TEST(Stop, SavesBeforeALongEvaluation) {
  const Scratch scratch;
  write_long_text(scratch);
  write_file(scratch / "run.toml", endless_evaluation());
  Child child({.arguments = {"train", "run.toml", "--quiet"}, .folder = scratch.folder()});
  await_metrics(scratch);
  child.send(SIGTERM);
  EXPECT_TRUE(within(5, [&] { return child.ended(); }));
  expect_kept(scratch, "no evaluation");
  EXPECT_THAT(read_file(newest(scratch) / "metrics.jsonl"), Not(HasSubstr("\"val\"")));
  // If requested, it comes after the save.
  Child asked({.arguments = {"train", "run.toml", "--quiet", "--set", "run.evaluate_on_stop=true"},
               .folder = scratch.folder(),
               .environment = {{"TENON_PHASE_LOG", (scratch / "phases").string()}}});
  await_phase(scratch, "phases", "compute");
  asked.send(SIGTERM);
  await_phase(scratch, "phases", "evaluate");
  asked.send(SIGKILL);
  EXPECT_EQ(checkpoints(scratch).size(), 1u);
}

TEST(Stop, EndsAnEvaluation) {
  const struct {
    const char* name;
    Words words;
    std::string more, log;
  } cases[] = {
      {"one rank", {"train", "run.toml", "--quiet"}, "", "phases"},
      {"two threads", {"train", "run.toml", "--quiet"}, kTwoRanks, "phases"},
      {"two processes", launched("socket"), kTwoRanks, "phases.0"},
  };
  for (const auto& it : cases) {
    const Scratch scratch;
    write_long_text(scratch);
    write_file(scratch / "run.toml",
               replaced(endless_evaluation(it.more), "log_every = 1", "log_every = 1\neval_every = 7"));
    Child child({.arguments = it.words,
                 .folder = scratch.folder(),
                 .environment = {{"TENON_PHASE_LOG", (scratch / "phases").string()}}});
    await_phase(scratch, it.log, "evaluate");
    std::this_thread::sleep_for(milliseconds(200));
    child.send(SIGTERM);
    EXPECT_TRUE(within(8, [&] { return child.ended(); })) << it.name;
    EXPECT_EQ(child.wait(1).status, 0) << it.name;
    expect_kept(scratch, it.name);
    EXPECT_EQ(checkpoints(scratch), std::vector<int>{7}) << it.name;
    EXPECT_THAT(read_file(newest(scratch) / "metrics.jsonl"), Not(HasSubstr("\"val\""))) << it.name;
    if (it.words.front() == "train") {
      // It is still due, and the resume begins with it.
      const Ended resumed = scratch.train(
          {"--resume", "--set", "run.eval_batches=2", "--set", "run.steps=9", "--set", "recovery.every=100"});
      EXPECT_EQ(resumed.status, 0) << resumed.err;
      EXPECT_THAT(read_file(newest(scratch) / "metrics.jsonl"),
                  AllOf(HasSubstr("{\"step\": 7, \"split\": \"val\""),
                        HasSubstr("{\"step\": 9, \"split\": \"val\"")));
    }
  }
}

TEST(Stop, EndsTheLastEvaluationWhichAResumeMakesUpFor) {
  const Scratch scratch;
  write_long_text(scratch);
  write_file(scratch / "run.toml", replaced(endless_evaluation(), "steps = 1000000", "steps = 7"));
  Child child({.arguments = {"train", "run.toml", "--quiet"},
               .folder = scratch.folder(),
               .environment = {{"TENON_PHASE_LOG", (scratch / "phases").string()}}});
  await_phase(scratch, "phases", "evaluate");
  child.send(SIGTERM);
  EXPECT_TRUE(within(8, [&] { return child.ended(); }));
  EXPECT_THAT(read_file(newest(scratch) / "metrics.jsonl"), Not(HasSubstr("\"val\"")));
  for (const char* time : {"first", "second"}) {
    const Ended resumed = scratch.train({"--resume", "--set", "run.eval_batches=2"});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    const std::string metrics = read_file(newest(scratch) / "metrics.jsonl"),
                      line = "\"split\": \"val\", \"name\": \"loss\"";
    const std::size_t at = metrics.find(line);
    EXPECT_NE(at, std::string::npos) << time;
    EXPECT_EQ(metrics.find(line, at + 1), std::string::npos) << "it is made once";
  }
}

TEST(Stop, SaysWhenNothingIsKept) {
  const Scratch scratch;
  std::string toml = endless();
  write_file(scratch / "run.toml", toml.substr(0, toml.find("[recovery]")) + "[recovery]\ntype = \"none\"\n");
  Child child({.arguments = {"train", "run.toml", "--quiet"}, .folder = scratch.folder()});
  await_metrics(scratch);
  child.send(SIGTERM);
  const Ended ended = child.wait(30);
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("tenon: warning: SIGTERM: the run stops"),
                               HasSubstr("nothing of it will be kept")));
}

// ---- other effects of a system

TEST(Streams, ThatAreClosedStayOutOfTheRunsFiles) {
  const std::string observed =
      "\n[[observe]]\ntype = \"progress\"\nevery_s = 0\n[[observe]]\ntype = \"csv\"\n";
  const Scratch open;
  write_file(open / "run.toml", Scratch::kRun + observed);
  ASSERT_EQ(open.run({"train", "run.toml"}).status, 0);
  for (const std::vector<int>& closed : {std::vector<int>{2}, {0, 1, 2}, {0, 2}}) {
    const Scratch scratch;
    write_file(scratch / "run.toml", Scratch::kRun + observed);
    const Ended ended =
        Child({.arguments = {"train", "run.toml"}, .folder = scratch.folder(), .closed = closed}).wait();
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(hashes_of(scratch), hashes_of(open));
    for (const auto& [name, contents] : tree(newest(scratch))) {
      if (name.starts_with("log.")) continue;
      EXPECT_THAT(contents, AllOf(Not(HasSubstr("completed after")), Not(HasSubstr("tok/s")))) << name;
    }
  }
}

TEST(Streams, AWriteThatFailsIsAnErrorWithItsName) {
  const Scratch scratch;
  const Ended full =
      Child(
          {.arguments = {}, .folder = scratch.folder(), .through = {"sh", "-c", "\"$0\" inspect >/dev/full"}})
          .wait();
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("tenon: standard output cannot be written: No space left on device"));
  // Exceeding a limit on files is an error of the file, and does not end the process.
  write_file(scratch / "run.toml", replaced(Scratch::kRun, "width = 16", "width = 64"));
  const Ended limited =
      Child(
          {.arguments = {"train", "run.toml", "--quiet"}, .folder = scratch.folder(), .largest_file = 65536})
          .wait();
  EXPECT_EQ(limited.status, 1) << limited.signal;
  EXPECT_THAT(limited.err,
              AllOf(HasSubstr("checkpoint of slot 6 could not be saved"), HasSubstr("File too large")));
  EXPECT_TRUE(checkpoints(scratch).empty());
}

}  // namespace
}  // namespace tenon::integration::stop_test
