// Meaning of the options, and errors.
#include "settings.hpp"

#include <tenon/error.hpp>
#include <tenon/precision.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::mor {
namespace {

TEST(MorSettings, ReadPartitions) {
  const std::tuple<const char*, std::int64_t, std::int64_t> cases[] = {
      {"128x128", 128, 128}, {"1x32", 1, 32}, {"row", 1, 0}, {"column", 0, 1}, {"tensor", 0, 0}};
  for (const auto& [text, across, along] : cases) {
    EXPECT_EQ(partition_of(text).across, across) << text;
    EXPECT_EQ(partition_of(text).along, along) << text;
  }
  for (const char* text :
       {"", "x", "0x4", "4x", "4x-1", "4x4x4", "4 x 4", "rows", "1x1048577", "99999999999999999999x1"}) {
    try {
      partition_of(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_EQ(std::string(error.what()), "precision.mor: partition = '" + std::string(text) +
                                               "'; expected row, column, tensor, or the extents of a block "
                                               "as RxC, each between 1 and 1048576, "
                                               "e.g. 128x128");
    }
  }
}

TEST(MorSettings, RefuseWhatIsNotDefined) {
  testing::Bench bench("cpu", "reference", 1);
  const std::pair<const char*, const char*> cases[] = {
      {"e2m3 = true", "precision.mor: e2m3 chooses among formats of blocks; set level = 'sub2' or 'sub3'"},
      {"level = 'sub2'\nfp4 = true", "precision.mor: fp4 decides about whole operands; set level = 'tensor'"},
      {"level = 'sub3'\nstrategy = 'current'",
       "precision.mor: strategy = 'current' has one scale for all blocks, and level = 'sub2' and 'sub3' ask "
       "whether a "
       "block's own span fits a format; set strategy to gam, block or e8"},
      {"partition = '4by4'", "precision.mor: partition = '4by4'; expected row"},
  };
  for (const auto& [options, expected] : cases) {
    try {
      bench.make_component<Precision>("mor", options);
      ADD_FAILURE() << options;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << options;
      EXPECT_THAT(error.what(), ::testing::HasSubstr(expected));
    }
  }
}

}  // namespace
}  // namespace tenon::mor
