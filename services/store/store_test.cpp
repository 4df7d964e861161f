// The checkpoint store when nothing fails: round trips at any world size, slices, increments, encodings.
#include <tenon/checkpoint.hpp>

#include "store/safetensors.hpp"
#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <stdexcept>

namespace tenon::store_test {
namespace {

using ::testing::ElementsAre;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::kFolder;
using testing::MemoryFiles;
using testing::message_of;
using testing::save_as_world;
using testing::save_step;
using testing::TinyModel;

using Store = testing::StoreFixture;

TEST_F(Store, P19_RoundTripAtAnyWorldSize) {
  for (const int world : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(world);
    const SaveResult result = save_step(store_, 100 + world, world);
    ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;
    EXPECT_EQ(result.error, "");
    const RestorePoint point = store_.recover(false);
    EXPECT_EQ(point.step, 100 + world);
    EXPECT_TRUE(point.rejected.empty());
    CheckpointReader reader = store_.open(point.step);
    TinyModel model(100 + world);
    EXPECT_TRUE(model.equals(reader));
    EXPECT_EQ(reader.world_size(), world);
    EXPECT_EQ(reader.base(), -1);
    EXPECT_EQ(*reader.meta("reader"), "position " + std::to_string(point.step));
    EXPECT_EQ(*reader.meta("rng.rank" + std::to_string(world - 1)), std::string("\0\xff\x01", 3));
    EXPECT_EQ(reader.meta("absent"), nullptr);
    // Another world size reads its own parts.
    for (const int readers : {1, 2, 3, 5, 8}) {
      for (int rank = 0; rank < readers; ++rank) {
        for (const SaveItem& item : model.items(rank, readers)) {
          std::vector<std::byte> part(item.data.bytes());
          reader.read_slice(item.name, item.offset, {part.data(), item.data.shape, item.data.dtype});
          EXPECT_EQ(std::memcmp(part.data(), item.data.data, part.size()), 0) << item.name;
        }
      }
    }
  }
}

// A table and its optimizer rows, saved by four ranks: in blocks of rows, by a hash, or whole on one of them.
// At two, three and eight ranks each reads what is its own under any of these placements, and nothing but the
// values of the logical table shows.
TEST_F(Store, P19_TablesSavedByFourAreReadByTwoThreeAndEightUnderAnyPlacement) {
  constexpr std::int64_t kRows = 29;
  const std::pair<std::string, std::int64_t> tensors[] = {{"model/table", 3}, {"optimizer.sum/table", 1}};
  const auto value = [](std::int64_t row, std::int64_t column, std::int64_t width) {
    return static_cast<float>(1000 * width + 10 * row + column);
  };
  using Owner = std::function<int(std::int64_t row, int world)>;
  const std::pair<const char*, Owner> placements[] = {
      {"blocks", [](std::int64_t row, int world) { return static_cast<int>(row * world / kRows); }},
      {"hash", [](std::int64_t row, int world) { return static_cast<int>(row * 7 % world); }},
      {"one rank", [](std::int64_t, int world) { return world / 2; }}};
  const auto rows_of = [](const Owner& owner, int rank, int world) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < kRows; ++row) {
      if (owner(row, world) == rank) rows.push_back(row);
    }
    return rows;
  };
  std::int64_t step = 0;
  for (const auto& [saved, saver] : placements) {
    SCOPED_TRACE(saved);
    std::vector<std::string> reports;
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<std::int64_t> rows = rows_of(saver, rank, 4);
      std::vector<std::vector<float>> values;
      std::vector<SaveItem> items;
      for (const auto& [name, width] : tensors) {
        std::vector<float>& mine = values.emplace_back();
        for (const std::int64_t row : rows) {
          for (std::int64_t k = 0; k < width; ++k) mine.push_back(value(row, k, width));
        }
        const Shape part{static_cast<std::int64_t>(rows.size()), width};
        items.push_back({name, {mine.data(), part, DType::kF32}, Shape{kRows, width}, Shape{0, 0}, rows});
      }
      SaveRequest request;
      request.step = step;
      if (!rows.empty()) request.items = items;
      reports.push_back(store_.write_part(request, rank, 4));
    }
    ASSERT_EQ(store_.commit(step, reports).status, SaveStatus::kCommitted);
    CheckpointReader reader = store_.open(step++);
    ASSERT_EQ(reader.tensors().size(), 2u) << "names do not depend on the placement";
    for (const auto& [name, width] : tensors) {
      ASSERT_NE(reader.find(name), nullptr);
      EXPECT_EQ(reader.find(name)->shape, (Shape{kRows, width}));
      for (const auto& [read, owner] : placements) {
        for (const int world : {2, 3, 8}) {
          for (int rank = 0; rank < world; ++rank) {
            const std::vector<std::int64_t> rows = rows_of(owner, rank, world);
            std::vector<float> out(rows.size() * static_cast<std::size_t>(width), -1);
            reader.read_rows(name, rows,
                             {out.data(), Shape{static_cast<std::int64_t>(rows.size()), width}, DType::kF32});
            std::size_t at = 0;
            for (const std::int64_t row : rows) {
              for (std::int64_t k = 0; k < width; ++k, ++at) {
                ASSERT_EQ(out[at], value(row, k, width)) << read << ", " << world << " ranks, row " << row;
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(Store, FilesAreOrdinarySafetensors) {
  save_step(store_, 1, 1);
  EXPECT_THAT(folder_names(files_, std::string(kFolder) + "/step-1"),
              ElementsAre("MANIFEST.json", "rank0.safetensors"));
  const SafetensorsReader reader(files_.open(std::string(kFolder) + "/step-1/rank0.safetensors"), "rank0");
  TinyModel model(1);
  EXPECT_EQ(reader.read_all(reader.at("weight")), model.bytes("weight"));
  EXPECT_EQ(reader.at("gate").shape, (std::vector<std::int64_t>{2, 3, 2}));
}

TEST_F(Store, SlicesOfEveryKind) {
  // A 4 x 5 x 6 tensor stored as 2 x 1 x 3 blocks, and every box of it read back.
  std::vector<std::int32_t> values(4 * 5 * 6);
  std::iota(values.begin(), values.end(), 0);
  const Shape shape{4, 5, 6};
  std::vector<std::vector<std::int32_t>> blocks;
  std::vector<SaveItem> items;
  for (std::int64_t a = 0; a < 4; a += 2) {
    for (std::int64_t c = 0; c < 6; c += 3) {
      std::vector<std::int32_t> block;
      for (std::int64_t i = a; i < a + 2; ++i) {
        for (std::int64_t j = 0; j < 5; ++j) {
          for (std::int64_t k = c; k < c + 3; ++k)
            block.push_back(static_cast<std::int32_t>((i * 5 + j) * 6 + k));
        }
      }
      blocks.push_back(std::move(block));
      items.push_back({"t", {nullptr, Shape{2, 5, 3}, DType::kI32}, shape, Shape{a, 0, c}});
    }
  }
  for (std::size_t i = 0; i < items.size(); ++i) items[i].data.data = blocks[i].data();
  ASSERT_EQ(save_items(1, -1, items).status, SaveStatus::kCommitted);
  CheckpointReader reader = store_.open(1);
  for (std::int64_t a = 0; a < 4; ++a) {
    for (std::int64_t b = 0; b < 5; ++b) {
      for (std::int64_t c = 0; c < 6; ++c) {
        for (const Shape& extents :
             {Shape{4 - a, 5 - b, 6 - c}, Shape{1, 5 - b, 1}, Shape{4 - a, 1, 6 - c}, Shape{1, 1, 1}}) {
          std::vector<std::int32_t> out(extents.elements(), -1);
          reader.read_slice("t", Shape{a, b, c}, {out.data(), extents, DType::kI32});
          std::size_t at = 0;
          for (std::int64_t i = a; i < a + extents[0]; ++i) {
            for (std::int64_t j = b; j < b + extents[1]; ++j) {
              for (std::int64_t k = c; k < c + extents[2]; ++k) ASSERT_EQ(out[at++], (i * 5 + j) * 6 + k);
            }
          }
        }
      }
    }
  }
}

TEST_F(Store, PackedElements) {
  std::vector<std::uint8_t> ragged{0x21, 0x43, 0x05};  // 5 codes of 4 bits
  std::vector<std::uint8_t> rows{1, 2, 3, 4, 5, 6};    // 3 rows of 4 codes
  const SaveItem items[] = {{"ragged", {ragged.data(), Shape{5}, DType::kF4E2M1}, Shape{5}, Shape{0}},
                            {"rows", {rows.data(), Shape{3, 4}, DType::kF4E2M1}, Shape{3, 4}, Shape{0, 0}}};
  ASSERT_EQ(save_items(1, -1, items).status, SaveStatus::kCommitted);
  CheckpointReader reader = store_.open(1);
  std::vector<std::uint8_t> out(3);
  reader.read("ragged", {out.data(), Shape{5}, DType::kF4E2M1});
  EXPECT_EQ(out, ragged);
  out.resize(2);
  reader.read_slice("rows", Shape{2, 0}, {out.data(), Shape{1, 4}, DType::kF4E2M1});
  EXPECT_EQ(out, (std::vector<std::uint8_t>{5, 6}));
  EXPECT_THAT(message_of([&] {
                reader.read_slice("ragged", Shape{1}, {out.data(), Shape{2}, DType::kF4E2M1});
              }),
              HasSubstr("does not begin and end on bytes"));
}

TEST_F(Store, IncrementsOverlayTheirBase) {
  save_step(store_, 10, 2);
  // Whole tensor replaced, and rows of the table, scattered.
  TinyModel expected(10);
  TinyModel newer(20);
  expected.bytes("bias") = newer.bytes("bias");
  const std::int64_t rows[] = {0, 1, 4, 10};
  std::vector<float> row_data(4 * 3);
  std::iota(row_data.begin(), row_data.end(), 100.0f);
  SaveItem table{"table", {row_data.data(), Shape{4, 3}, DType::kF32}, Shape{11, 3}, Shape{0, 0}};
  table.rows = rows;
  for (std::size_t i = 0; i < 4; ++i)
    std::memcpy(expected.bytes("table").data() + rows[i] * 12, &row_data[i * 3], 12);
  const SaveItem first[] = {{"bias", newer.view("bias"), Shape{5}, Shape{0}}, table};
  SaveResult result = save_items(20, 10, first);
  ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;

  // The next one replaces a slice of a tensor and one of the rows again.
  const std::int64_t again[] = {4};
  table.rows = again;
  table.data = {row_data.data(), Shape{1, 3}, DType::kF32};
  std::memcpy(expected.bytes("table").data() + 4 * 12, row_data.data(), 12);
  TinyModel newest(30);
  std::memcpy(expected.bytes("weight").data() + 64, newest.bytes("weight").data() + 64, 64);
  const SaveItem second[] = {table, {"weight", newest.view("weight").rows(2, 4), Shape{6, 4}, Shape{2, 0}}};
  result = save_items(30, 20, second);
  ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;

  EXPECT_EQ(store_.recover(false).step, 30);
  CheckpointReader reader = store_.open(30);
  EXPECT_EQ(reader.base(), 20);
  EXPECT_TRUE(expected.equals(reader));
  // Rows in any order, with repeats and runs across parts.
  const std::int64_t wanted[] = {10, 3, 4, 5, 0, 0};
  std::vector<std::byte> out(6 * 12);
  reader.read_rows("table", wanted, {out.data(), Shape{6, 3}, DType::kF32});
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(std::memcmp(out.data() + i * 12, expected.bytes("table").data() + wanted[i] * 12, 12), 0)
        << wanted[i];
  }
  // The chain below is still readable as it was.
  TinyModel base(10);
  CheckpointReader old = store_.open(10);
  EXPECT_TRUE(base.equals(old));
  // Both bases are needed by the newest generation, however few are to be kept.
  EXPECT_THAT(store_.generations(), ElementsAre(10, 20, 30));
}

TEST_F(Store, ABaseWrittenAgainIsAnotherBase) {
  save_step(store_, 10, 1);
  TinyModel newer(20);
  const SaveItem items[] = {{"bias", newer.view("bias"), Shape{5}, Shape{0}}};
  ASSERT_EQ(save_items(20, 10, items).status, SaveStatus::kCommitted);
  TinyModel other(11);
  SaveRequest request;
  request.step = 10;
  ASSERT_EQ(save_as_world(store_, other, request, 2).status, SaveStatus::kCommitted);
  EXPECT_THAT(message_of([&] { store_.open(20); }), HasSubstr("is not the base that"));
  const RestorePoint point = store_.recover(false);
  EXPECT_EQ(point.step, 10);
  ASSERT_EQ(point.rejected.size(), 1u);
  EXPECT_EQ(point.rejected[0].step, 20);
  CheckpointReader reader = store_.open(10);
  EXPECT_TRUE(other.equals(reader));
}

TEST_F(Store, RowListsOfACompleteGeneration) {
  // Rows spread over ranks by a hash: odd ones on rank 1, even ones on rank 0.
  std::vector<float> values[2];
  std::vector<std::int64_t> rows[2];
  for (std::int64_t row = 0; row < 9; ++row) {
    rows[row % 2].push_back(row);
    for (int k = 0; k < 2; ++k) values[row % 2].push_back(static_cast<float>(row * 2 + k));
  }
  const auto save = [&](std::int64_t step, const std::vector<std::int64_t>& odd) {
    std::vector<std::string> reports;
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<std::int64_t>& mine = rank == 1 ? odd : rows[0];
      SaveItem item{"table",
                    {values[rank].data(), Shape{static_cast<std::int64_t>(mine.size()), 2}, DType::kF32},
                    Shape{9, 2},
                    Shape{0, 0}};
      item.rows = mine;
      SaveRequest request;
      request.step = step;
      request.items = {&item, 1};
      reports.push_back(store_.write_part(request, rank, 2));
    }
    return store_.commit(step, reports);
  };
  SaveResult result = save(1, rows[1]);
  ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;
  std::vector<float> whole(18);
  store_.open(1).read("table", {whole.data(), Shape{9, 2}, DType::kF32});
  for (int i = 0; i < 18; ++i) EXPECT_EQ(whole[i], static_cast<float>(i));
  result = save(2, {1, 3, 5, 8});
  EXPECT_EQ(result.status, SaveStatus::kAborted);
  EXPECT_THAT(result.error, HasSubstr("row 8 of tensor 'table' is stored twice"));
  result = save(3, {1, 3, 5});
  EXPECT_THAT(result.error, HasSubstr("hold 16 of 18 elements"));
  EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1"));
}

TEST_F(Store, EncodedPartsNeedTheirDecoder) {
  const std::string payload = "abc";
  SaveItem item{"table", {nullptr, Shape{3, 2}, DType::kU8}, Shape{3, 2}, Shape{0, 0}};
  item.encoding = "doubled";
  item.payload = std::as_bytes(std::span(payload));
  ASSERT_EQ(save_items(1, -1, {&item, 1}).status, SaveStatus::kCommitted);
  CheckpointReader reader = store_.open(1);
  std::string out(4, ' ');
  const TensorView view{out.data(), Shape{2, 2}, DType::kU8};
  EXPECT_THAT(message_of([&] {
                reader.read_slice("table", Shape{1, 0}, view);
              }),
              HasSubstr("encoding 'doubled', for which no decoder"));
  reader.add_decoder("doubled", [](const EncodedPart& part, std::span<std::byte> to) {
    ASSERT_EQ(to.size(), 2 * part.payload.size());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = part.payload[i / 2];
  });
  reader.read_slice("table", Shape{1, 0}, view);
  EXPECT_EQ(out, "bbcc");
}

TEST(StoreOnDisk, RoundTripOnTheRealFileSystem) {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  const std::string root = ::testing::TempDir() + "tenon_store_" + std::to_string(::getpid());
  CheckpointStore store(*files, root + "/a/checkpoints", {});
  for (const std::int64_t step : {1, 2, 3, 3}) {
    ASSERT_EQ(save_step(store, step, 3).status, SaveStatus::kCommitted);
  }
  TinyModel model(3);
  model.add("large", DType::kF32, Shape{700, 1001}, 4);  // three blocks
  SaveRequest request;
  request.step = 4;
  ASSERT_EQ(save_as_world(store, model, request, 2).status, SaveStatus::kCommitted);
  const RestorePoint point = store.recover(false);
  EXPECT_EQ(point.step, 4);
  CheckpointReader reader = store.open(4);
  EXPECT_TRUE(model.equals(reader));
  EXPECT_THAT(folder_names(*files, store.folder()), ElementsAre("step-3", "step-4"));
  remove_tree(*files, root);
}

}  // namespace
}  // namespace tenon::store_test
