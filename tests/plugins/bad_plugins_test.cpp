// Every error of a plugin file, and the full text of its refusal.
#include "bad_files.hpp"
#include "support.hpp"

#include "plugin/loader.hpp"

namespace tenon::plugin {
namespace {

using fixture::BadFile;

class BadPlugin : public testing::TestWithParam<BadFile> {};

TEST_P(BadPlugin, IsRefusedWithTheWholeMessage) {
  const std::filesystem::path file = fixture::path(std::string("bad/") + GetParam().file);
  AbiTag host = host_abi_tag();
  // Epoch 0 is older than every other: here the program is the newer side.
  if (GetParam().file == std::string("old_epoch") && host.epoch == "0") host.epoch = "1";
  const std::uint64_t fp_before = fp_control();
  const std::string message = fixture::error_text(
      [&] {
        const OpenPlugin plugin = open_plugin(file, host);
        init_plugin(*plugin.descriptor, plugin.file);
      },
      ErrorKind::kPlugin);
  EXPECT_EQ(message, fixture::filled(GetParam().message, file));
  EXPECT_EQ(fp_control(), fp_before);
}

INSTANTIATE_TEST_SUITE_P(All, BadPlugin, testing::ValuesIn(fixture::kBadFiles),
                         [](const testing::TestParamInfo<BadFile>& info) {
                           return std::string(info.param.file);
                         });

TEST(BadPlugins, CreateThatThrowsNamesTheComponentAndTheRank) {
  Registry registry;
  registry.discover_only({fixture::path("bad/create_throws").string()});
  fixture::FakeHost host(3);
  const ResolvedOptions options("toy.unborn");
  EXPECT_EQ(
      fixture::error_text([&] { registry.create<toy::Toy>("unborn", options, host); }, ErrorKind::kPlugin),
      "plugin bad.create_throws (toy.unborn, rank 3): the table is empty");
}

}  // namespace
}  // namespace tenon::plugin
