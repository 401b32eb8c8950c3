import dataclasses

from jengine.aot.request import Job, SurveyRequest


def test_a_request_survives_the_way_to_the_worker(make_request):
    request = make_request(
        options={"max_num_seqs": 4, "override_generation_config": {"top_k": 1}},
        tensor_parallel_size=2,
        layers=None,
        save="somewhere",
        only=(Job(3, True), Job(4, False)),
    )
    text = request.to_json()
    assert "\n" not in text
    assert SurveyRequest.from_json(text) == request


def test_without_a_choice_everything_is_asked_for(make_request):
    request = make_request()
    back = SurveyRequest.from_json(request.to_json())
    assert back.only is None
    assert back == dataclasses.replace(request)
