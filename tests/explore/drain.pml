/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The drain protocol and replace (src/percpu/drain.c, src/percpu/slot.h INV-1 to INV-4) as a model
 * for spin: a slot with a main sheaf, two threads on its CPU that pop, push and replace, and a
 * drainer on another CPU. test_drain_model.py says which macro leaves out which step; then an
 * assertion must fail.
 *
 * Correspondence:
 *  - `main` is the slot's pair; a second pointer in it would add states and no step. COLD is the cold
 *    sheaf. size and object are struct sheaf's.
 *  - STEP is an instruction of a restartable sequence. It runs only while the thread has the CPU, and
 *    goes to the abort address if the sequence was aborted. Process kernel is the preemption of the
 *    thread that runs, which aborts its sequence; fence() is membarrier's RSEQ command.
 *  - pop is KMEM_SEQUENCE_POP, push KMEM_SEQUENCE_PUSH, replace rseq_replace: the same loads in the
 *    same order and a single store. An aborted sequence is given up, as after its second abort; that
 *    it may also begin anew is the next round of the thread.
 *  - The drainer's steps have the numbers of drain.c.
 *  - owner and out are ghosts. INV-1: a sheaf has a single owner. An object is out once at most.
 * Not in the model: store buffers (fences and aborts order all accesses here), several slots,
 * stocks and barns.
 */

#define COLD 0
#define ROOM 2

#define OWNER_SLOT 2
#define OWNER_DRAINER 3

byte main = 1;
byte size[4];
byte object[8]; /* object[sheaf * ROOM + index] */
byte owner[4];
bool stop_mark;
byte running; /* the thread that has the CPU */
bool aborted[2];
bool out[8]; /* objects that a thread has; 0 is none */
byte drains;

#define AT(sheaf, index) object[(sheaf) * ROOM + (index)]

/* An instruction of a sequence of thread _pid. */
#define STEP(instruction)                                                                          \
        atomic {                                                                                   \
                running == me;                                                                     \
                if                                                                                 \
                :: aborted[me] -> goto done                                                        \
                :: else -> instruction                                                             \
                fi                                                                                 \
        }
/* An instruction outside of sequences. */
#define PLAIN(instruction) atomic { running == me; instruction }

inline fence()
{
        atomic { aborted[0] = true; aborted[1] = true }
}

proctype thread(byte me)
{
        byte own = me + 2; /* the sheaf that the slow path owns: full */
        byte seen;
        byte count;
        byte got;
        byte rounds = ROUNDS;

        do
        :: rounds == 0 -> break
        :: rounds > 0 ->
                rounds--;
                PLAIN(aborted[me] = false);
                if
                :: got == 0 -> /* pop */
                        STEP(seen = main);
                        STEP(count = size[seen]);
                        STEP(if :: count == 0 -> goto done :: else fi);
                        STEP(got = AT(seen, count - 1));
                        atomic {
                                running == me;
                                if
                                :: aborted[me] -> got = 0; goto done
                                :: else ->
                                        size[seen] = count - 1;
                                        assert(!out[got]);
                                        out[got] = true
                                fi
                        }
                :: got != 0 -> /* push */
                        STEP(seen = main);
                        STEP(count = size[seen]);
                        STEP(if :: seen == COLD || count >= ROOM -> goto done :: else fi);
                        STEP(AT(seen, count) = got);
                        STEP(size[seen] = count + 1; assert(out[got]); out[got] = false; got = 0)
                :: own != COLD -> /* replace: main comes out, the thread's sheaf goes in */
                        PLAIN(seen = main);
                        PLAIN(aborted[me] = false);
#ifndef NO_STOP_CHECK
                        STEP(if :: stop_mark -> goto done :: else fi);
#endif
#ifndef NO_COMPARE
                        STEP(if :: main != seen -> goto done :: else fi);
#endif
                        STEP(
                                assert(owner[own] == me);
                                main = own;
                                owner[own] = OWNER_SLOT;
                                if
                                :: seen != COLD ->
                                        assert(owner[seen] == OWNER_SLOT);
                                        owner[seen] = me
                                :: else
                                fi;
                                own = seen)
                fi;
done:           skip
        od
}

proctype drainer()
{
        byte old;
        byte index;

#ifndef NO_STOP
        stop_mark = true;                                     /* (1) */
#endif
#ifndef NO_FIRST_FENCE
        fence();                                            /* (2) */
#endif
        old = main;                                         /* (3) */
        main = COLD;
#ifndef NO_SECOND_FENCE
        fence();                                            /* (4) */
#endif
        if                                                  /* (5) */
        :: old != COLD ->
                atomic {
                        assert(owner[old] == OWNER_SLOT);
                        owner[old] = OWNER_DRAINER
                };
                do
                :: index == size[old] -> break
                :: index != size[old] ->
                        /* Given to its slab, from where another thread may get it. */
                        atomic {
                                assert(!out[AT(old, index)]);
                                out[AT(old, index)] = true
                        };
                        index++
                od
        :: else
        fi;
        stop_mark = false;                                    /* (6) */
        drains++
}

/* Preempts the thread that runs. */
proctype kernel()
{
        do
        :: atomic { running == 0 -> aborted[0] = true; running = 1 }
        :: atomic { running == 1 -> aborted[1] = true; running = 0 }
        od
}

init
{
        atomic {
                size[1] = ROOM; AT(1, 0) = 1; AT(1, 1) = 2; owner[1] = OWNER_SLOT;
                size[2] = ROOM; AT(2, 0) = 3; AT(2, 1) = 4; owner[2] = 0;
                size[3] = ROOM; AT(3, 0) = 5; AT(3, 1) = 6; owner[3] = 1;
                run thread(0);
                run thread(1);
                run drainer();
                run kernel()
        }
}
