// ClientTurns: the order in which sequences go, so that clients share the engine in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace tokamak {

struct ClientLevel;

// The sequences of one client and priority.
struct ClientQueue {
  ClientLevel* level = nullptr;
  std::set<Sequence*, ByArrival> sequences;
  int32_t num_waiting = 0;  // of these
  int64_t served = 0;       // tokens computed for it, on the scale of virtual time
  int64_t turn_start = 0;   // what it was when the client's turn began
  int64_t charged = 0;      // tokens since the last step began
  bool advanced = false;    // some of these are its first sequence's
  int64_t recomputed = 0;   // tokens computed again in this turn, not charged
};

// The clients of one priority.
struct ClientLevel {
  std::map<std::string, ClientQueue> queues;
  int64_t virtual_time = 0;  // tokens: where clients begin
};

// Higher priorities go first. Within a priority, clients take turns of `turn_tokens` tokens
// computed for them, prompt or generated; and a client's sequences go in order of arrival. Ranks
// are by this number, the smallest first, then by arrival:
//
//   of a client's i-th sequence: tokens computed for the client before its turn + i * turn_tokens
//
// So a client with one sequence goes before the second one of every other client, however many they
// have, and clients with many get equal shares. This is start-time fair queuing (Goyal et al.,
// 1996) with tokens as service, as in VTC (arXiv:2401.00588); both order clients by a counter. Here
// the position among the client's own sequences counts too, because many run at the same time.
//
// Five rules keep it sound:
// - Idle clients collect no credit. A request of a client that has nothing waiting starts no
//   earlier than the virtual time: the tokens that a client would have got that always took its
//   share.
// - Only new positions count. What a preempted sequence computes again is not charged, unless its
//   client had it paused.
// - But a turn lasts until it has charged as many tokens as were computed again in it. So even if
//   each turn preempts the one before, at least half of the work is new, however long the contexts
//   are. The counters keep shares equal: a client with a longer turn then waits longer.
// - A client's turn ends when its first sequence ends, so that a new request waits no longer for
//   clients with many short sequences than for those that send the same ones one by one.
// - Otherwise it ends with a new position of its first sequence, never before. The best ranked
//   sequence hence makes progress, unless a request arrives that ranks above it.
//
// Holds state only for clients that have sequences here. Engine thread only.
class ClientTurns {
  using Levels = std::map<int32_t, ClientLevel, std::greater<>>;  // by priority

 public:
  explicit ClientTurns(int64_t turn_tokens) : turn_tokens_(turn_tokens) {}

  // A waiting sequence takes part from now on, until it leaves.
  void Join(Sequence* sequence);
  void Leave(Sequence* sequence);
  // One that takes part begins or ceases to wait.
  void CountWaiting(const Sequence& sequence, int32_t change);
  // Turns end here, by what was charged since the last call.
  void BeginStep();
  // The step will compute positions [start, end) of the sequence.
  void Charge(Sequence* sequence, int32_t start, int32_t end);

  // All sequences that take part, the best ranked first. Invalid after Join, Leave and BeginStep.
  class Walk {
   public:
    explicit Walk(const ClientTurns& turns);
    Sequence* Next();  // null at the end

   private:
    struct Head {
      int64_t rank = 0;
      std::set<Sequence*, ByArrival>::const_iterator next, end;
    };
    static bool GoesLater(const Head& a, const Head& b);
    void EnterLevel();

    const int64_t turn_tokens_;
    Levels::const_iterator level_, last_level_;
    std::vector<Head> heads_;  // a heap of the level's clients
  };

 private:
  friend class EngineChecker;  // tests/sim: invariants after every step

  static void EndTurn(ClientQueue* queue);

  const int64_t turn_tokens_;
  Levels levels_;
};

}  // namespace tokamak
