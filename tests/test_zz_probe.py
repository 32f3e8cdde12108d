from tests.test_plugin import *
def test_probe(directory):
    directory.makeconftest(CONFTEST)
    r = directory.runpytest_subprocess(*command(["-n", "2", "--examples", "1", "-k", "whole","-v"], ["Toy", "Lifted"]))
    print(json.dumps(report_of(directory)["backends"], indent=1))
    assert 0
