// Whole runs on a device whose memory the host may not touch, over every transport: the bits are those of
// ranks as threads. NCCL is the stand-in of its plugin's tests, between real processes.
#include "run_program.hpp"

namespace tenon::integration::device_transports_test {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

std::string run_file(const std::string& device, const std::string& more = "") {
  return "extends = [\"" + std::string(TENON_SOURCE_DIR) +
         "/configs/base/dlrm_adult.toml\"]\n\n[run]\nname = \"tiny\"\nsteps = 8\n\n[device]\ntype = \"" +
         device +
         "\"\n\n[parallel]\nranks = 2\n\n[sync]\ntype = \"ddp\"\n\n[transport]\ntype = \"thread\"\n" + more;
}

const Words kNccl = {"--set", "transport.fast_nondeterministic=true", "--set",
                     std::string("transport.library=") + TENON_FAKE_NCCL};

Words launched(const std::string& transport, const Words& more = {}, const Words& options = {}) {
  Words words{"launch", "-n", "2", "--transport", transport};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "train", "run.toml", "--quiet"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(DeviceTransports, GiveTheBitsOfThreadsOnADeviceWithMemoryOfItsOwn) {
  const Scratch threads, sockets, nccl;
  write_file(threads / "run.toml", run_file("cuda_emulated"));
  const Ended alone = threads.train();
  ASSERT_EQ(alone.status, 0) << alone.err;
  write_file(sockets / "run.toml", run_file("cuda_emulated"));
  const Ended over_tcp = sockets.run(launched("socket"));
  ASSERT_EQ(over_tcp.status, 0) << over_tcp.err;
  EXPECT_EQ(hashes_of(sockets), hashes_of(threads));
  // The stand-in reads and writes the device's memory as the host, so the guard is off.
  write_file(nccl / "run.toml", replaced(run_file("cuda_emulated"), "type = \"cuda_emulated\"",
                                         "type = \"cuda_emulated\"\nguard = false"));
  const Ended over_nccl = nccl.run(launched("nccl", kNccl));
  ASSERT_EQ(over_nccl.status, 0) << over_nccl.err;
  EXPECT_EQ(nccl.summary("weights_hash"), threads.summary("weights_hash"));
  EXPECT_EQ(nccl.summary("bytes_sent"), threads.summary("bytes_sent"));
  EXPECT_EQ(nccl.summary("deterministic"), "false");
  EXPECT_THAT(nccl.summary("nondeterminism"), HasSubstr("order of NCCL"));
}

TEST(DeviceTransports, CheckSaysWhatTheMachineLacksForNcclInOneLine) {
  const Scratch scratch;
  write_file(scratch / "run.toml",
             replaced(run_file("cuda_emulated"), "type = \"thread\"", "type = \"nccl\""));
  const Ended plain = scratch.run({"check", "run.toml"});
  EXPECT_EQ(plain.status, 2) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("set transport.fast_nondeterministic = true to accept that"));
  const Ended absent = scratch.run({"check", "run.toml", "--set", "transport.fast_nondeterministic=true",
                                    "--set", "transport.library=/nowhere/libnccl.so.2"});
  EXPECT_EQ(absent.status, 2) << absent.err;
  EXPECT_THAT(absent.err, HasSubstr("transport.nccl: NCCL cannot be opened: /nowhere/libnccl.so.2"));
  EXPECT_EQ(std::count(absent.err.begin(), absent.err.end(), '\n'), 1);
  Words words = {"check", "run.toml"};
  words.insert(words.end(), kNccl.begin(), kNccl.end());
  const Ended there = scratch.run(words);
  EXPECT_EQ(there.status, 0) << there.err;
}

TEST(DeviceTransports, NcclIsRefusedWhereTheDeviceIsNotItsOwn) {
  const Scratch scratch;
  write_file(scratch / "run.toml", run_file("cpu"));
  const Ended ended = scratch.run(launched("nccl", kNccl));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("set device.type = \"cuda\""));
}

TEST(DeviceTransports, OthersOutliveADeathOverNccl) {
  const std::string guard = "type = \"cuda_emulated\"\nguard = false";
  const std::string death = "\n[recovery]\ntype = \"full\"\nevery = 2\nasync = false\n";
  const std::string fault = "\n[[fault]]\nrank = 1\nstep = 5\nkind = \"crash\"\n";
  const Scratch whole, killed;
  write_file(whole / "run.toml",
             replaced(run_file("cuda_emulated", death), "type = \"cuda_emulated\"", guard));
  write_file(killed / "run.toml",
             replaced(run_file("cuda_emulated", death + fault), "type = \"cuda_emulated\"", guard));
  const Ended quiet = whole.run(launched("nccl", kNccl, {"--restarts", "1"}));
  ASSERT_EQ(quiet.status, 0) << quiet.err;
  const Ended ended = killed.run(launched("nccl", kNccl, {"--restarts", "1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(killed.summary("weights_hash"), whole.summary("weights_hash"));
}

}  // namespace
}  // namespace tenon::integration::device_transports_test
