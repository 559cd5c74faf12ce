from gigaslide.sweep import owners
from gigaslide.sweep.owners import Owners
from gigaslide.sweep.results import Trial


def running(number, owner, beat=0):
    return Trial(number, {"network.stride": number}, True, False, owner, beat, None)


def test_on_one_machine_a_dead_owner_is_known_at_once(tmp_path):
    me, other = Owners(tmp_path), Owners(tmp_path)
    trials = [running(0, me.name), running(1, other.name)]
    assert me.dead(trials) == []
    assert me.others_here()
    # What the kernel does when a process is killed: the lock is free, its file stays.
    other._lock.release()
    assert me.dead(trials) == trials[1:]
    assert [trial.number for trial in me.dead([*trials, running(2, other.name)])] == [1, 2]
    assert not me.others_here()
    me.close(has_left_nothing=True)
    assert not (tmp_path / f"owner-{me.name}.lock").exists()


def test_elsewhere_it_is_dead_when_its_number_stands_still(tmp_path):
    now = [0.0]
    me = Owners(tmp_path, lambda: now[0])
    assert me.dead([running(0, "far", 1)]) == []
    now[0] += owners.STALE_S
    assert me.dead([running(0, "far", 2)]) == []
    now[0] += owners.STALE_S
    assert me.dead([running(0, "far", 2)]) == []
    now[0] += 1
    assert me.dead([running(0, "far", 2)]) == [running(0, "far", 2)]
    assert me.dead([running(0, "far", 3)]) == []
    me.close(has_left_nothing=True)


def test_claimed_a_moment_ago_and_not_yet_signed_is_not_dead(tmp_path):
    now = [0.0]
    me = Owners(tmp_path, lambda: now[0])
    assert me.dead([running(0, None)]) == []
    now[0] += owners.STALE_S + 1
    assert len(me.dead([running(0, None)])) == 1
    me.close(has_left_nothing=True)


def test_the_beat_is_faster_than_the_patience():
    assert 3 * owners.BEAT_S <= owners.STALE_S


def test_what_may_have_left_something_stays_to_be_seen(tmp_path):
    me, other = Owners(tmp_path), Owners(tmp_path)
    other.close(has_left_nothing=False)
    assert me.dead([running(0, other.name)]) == [running(0, other.name)]
    me.close(has_left_nothing=True)
