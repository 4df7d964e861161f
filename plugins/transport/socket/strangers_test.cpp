// Bytes from outside: strangers that connect while a run connects, and connections with arbitrary content.
#include "socket_world.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <random>

namespace tenon::socket_transport {
namespace {

using ::testing::HasSubstr;

// Lets a stranger with `bytes` connect first to the rank that announced itself.
class KnockedRendezvous final : public Rendezvous {
 public:
  KnockedRendezvous(const std::string& folder, int rank, std::string bytes)
      : inner_(folder, rank, 2), bytes_(std::move(bytes)) {}
  ~KnockedRendezvous() override {
    for (const int fd : strangers_) ::close(fd);
  }
  int rank() const override { return inner_.rank(); }
  int ranks() const override { return 2; }
  std::vector<std::string> exchange(const std::string& text) override {
    const std::size_t port = text.find(" only ");
    const std::size_t begin = text.rfind(' ', port - 1) + 1;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(begin, port - begin))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    strangers_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(strangers_.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::send(strangers_.back(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes_.size()));
    return inner_.exchange(text);
  }

 private:
  testing::FolderRendezvous inner_;
  std::string bytes_;
  std::vector<int> strangers_;
};

TEST(Strangers, AreTurnedAwayAndTheRunConnects) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("tenonso1\1\0\0\0\2\0\0\0\1\2\3\4\5\6\7\10", 24)}) {  // ours, of another run
    const testing::RendezvousFolder folder;
    std::array<SocketMesh, 2> meshes;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        KnockedRendezvous rendezvous(folder.path(), rank, bytes);
        meshes[rank] = connect_mesh(rendezvous, {.address = "127.0.0.1", .interface = "", .deadline_s = 20});
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(meshes[0].peers[1] && meshes[1].peers[0]);
    char byte = 'x';
    EXPECT_EQ(::send(meshes[0].peers[1].get(), &byte, 1, 0), 1);
    ASSERT_TRUE(wait_for(meshes[1].peers[0].get(), POLLIN, in_seconds(10)));
    EXPECT_EQ(::recv(meshes[1].peers[0].get(), &byte, 1, 0), 1);
  }
}

// Rank 1 is a raw connection that sends `bytes`; returns the error of rank 0's barrier.
std::string barrier_against(const std::vector<std::byte>& bytes) {
  auto meshes = loopback_meshes(2);
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.ranks = 2;
  spec.deadline_s = 5;
  spec.clock = clock.get();
  RingTransport transport(std::make_unique<SocketPort>(std::move(meshes[0])), spec, "transport.socket");
  const int ranks[] = {0, 1};
  const auto group = transport.open(0, {.ranks = ranks, .name = "g"});
  EXPECT_EQ(::send(meshes[1].peers[0].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  ::shutdown(meshes[1].peers[0].get(), SHUT_WR);
  try {
    group->barrier();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Strangers, AConnectionThatCarriesSomethingElseIsAnErrorThatSaysSo) {
  EXPECT_THAT(barrier_against(std::vector<std::byte>(48, std::byte{'x'})),
              HasSubstr("rank 1 is gone: its connection carries something else: a frame begins with"));
  FrameHeaderBytes header = write_frame_header({.kind = FrameKind::kOpen});
  header[30] ^= std::byte{4};
  EXPECT_THAT(barrier_against({header.begin(), header.end()}), HasSubstr("check sum"));
}

TEST(Strangers, FramesOfAnyOrderAndContentEndInAnError) {
  std::mt19937_64 engine(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::byte> bytes;
    for (int i = 0; i < 40; ++i) {
      FrameHeader header;
      header.kind = static_cast<FrameKind>(1 + engine() % 8);
      if (header.kind == FrameKind::kBye) continue;
      header.epoch = static_cast<std::uint32_t>(engine() % 2);
      header.group = engine() % 4;
      header.number = engine() % 4;
      header.index = static_cast<std::uint32_t>(engine() % 4);
      header.bytes = static_cast<std::uint32_t>(engine() % 200);
      const FrameHeaderBytes head = write_frame_header(header);
      bytes.insert(bytes.end(), head.begin(), head.end());
      for (std::uint32_t k = 0; k < header.bytes; ++k) bytes.push_back(static_cast<std::byte>(engine()));
    }
    EXPECT_NE(barrier_against(bytes), "");
  }
}

}  // namespace
}  // namespace tenon::socket_transport
