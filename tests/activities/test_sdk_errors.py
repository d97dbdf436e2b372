"""Every error of the installed SDK and of its HTTP library has a meaning that somebody has thought about.

A new release of the SDK may bring classes of its own: then these tests fail, until the tables here say what they mean.
"""

from collections.abc import Iterator

import httpx2
import pytest
from anthropic import AnthropicError, _error_classes, _exceptions
from anthropic.lib.credentials import WorkloadIdentityError

from settled.activities.model_errors import Remedy, classify
from settled.activities.model_provider import Provider
from settled.local.messages_script import HttpError, Step
from settled.local.messages_server import MessagesServer

ASKED = {"model": "claude-scripted", "max_tokens": 100, "messages": [{"role": "user", "content": "Look up A1."}]}
REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/messages")


def named(names: str) -> frozenset[str]:
    """The names, which stand one after the other."""
    return frozenset(names.split())


# What the server answers with a status, and an error code where there is one.
ANSWERS: dict[Remedy, frozenset[str]] = {
    Remedy.RETRY: named(
        """
        BetaAuthorizationCheckUnavailableError BetaRegistrationPendingError CMEKContextUnavailableError
        CMEKKeyUnreachableError ChangeOutcomeUnknownError ConflictError GatewayTimeoutError HTTPNotImplementedError
        RampLimitExceededError RateLimitError RequestTimeoutError ServiceUnavailableError
        WorkspaceCreatedIncompleteError BetaGCPProjectControlledByAnotherOrganizationError
        BetaPluginNameTakenError BetaScanPendingError
        BetaSkillNameTakenError BetaSlackChannelSetUpSettingsConflictError BetaStorageAlreadyRegisteredError
        BetaStorageChangedConcurrentlyError BetaStorageInUseError BetaWorkspaceChangedConcurrentlyError
        ConcurrentMembershipChangeError ExternalKeyChangedError SkillReadBlockedUndecryptableError
        StorageAttachedDuringArchiveError
        """
    ),
    Remedy.FALL_BACK: frozenset({"CompactionUnavailableError", "OverloadedError"}),
    Remedy.SUM_UP: frozenset({"ContentTooLargeError", "RequestBodyTooLargeAfterDecodingError"}),
    Remedy.GIVE_UP: named(
        """
        AlreadyMemberError AuthenticationError AvailableToolsLimitExceededError BadRequestError
        BetaAPIKeyScopeMissingError BetaApprovalRequiredError BetaBundleAttachmentNotSupportedError
        BetaBundleOnCallError BetaCMEKFeatureUnsupportedError BetaCMEKNotApprovedError
        BetaCannotSignOutManagedMemberError BetaCannotSignOutMembershipAdminError BetaCannotSignOutOwnerError
        BetaCannotSignOutPrimaryOwnerError BetaCannotSignOutPrivilegedMemberError BetaCannotSignOutSelfError
        BetaClaudeTagWritesNotEnabledError BetaComplianceConfigurationRestrictedError BetaEnvironmentArchivedError
        BetaEnvironmentCreateDisabledError BetaEnvironmentNotFoundError BetaEnvironmentUpdateDisabledError
        BetaExternalKeyNotFoundError BetaExternalKeyProviderMismatchError BetaExternalStorageInUseError
        BetaExternalStorageInWorkspacePolicyError BetaExternalStorageNotAvailableError
        BetaGCPProjectNotVerifiedError BetaGrantRequiredError BetaHeartbeatPreconditionFailedError
        BetaHumanReviewNotAvailableError BetaHumanReviewOnWithExternalStorageError BetaInvalidConfigTypeChangeError
        BetaInvalidMetadataError BetaInvalidStorageARNError BetaOrganizationLevelScopedAPIKeyRequiredError
        BetaOrganizationNotEligibleError BetaOrganizationNotEnrolledInBetaError BetaProviderNotAllowedError
        BetaRBACGroupManagedSettingsNotFoundError BetaRBACGroupNotFoundError BetaRBACGroupOrderLimitExceededError
        BetaRegionNotSupportedError BetaRequestBodyTimeoutError BetaScanFailedError
        BetaSettingsDocumentLimitExceededError BetaSettingsHistoryLimitExceededError
        BetaSlackChannelSetUpEnvironmentNotFoundError BetaSlackChannelSetUpSettingsRefusedError
        BetaSpendLimitsAdminAPIWritesNotEnabledError BetaStorageAttachLimitReachedError BetaStorageNotApprovedError
        BetaStorageNotAttachableError BetaStorageProfileStillRequiredError BetaStorageVerificationFailedError
        BetaTranscriptsStorageRequiredError BetaUnsupportedCharsetError BetaUnsupportedRegionError
        CMEKKeyDisabledError CMEKKeyNetworkBlockedError CannotInviteEmailsWithUnverifiedDomainsError
        CannotRemoveLastMemberError ClaudeCodeKeyCreatorNotMemberError ClaudeCodeVersionTooOldError
        ClientClosedRequestError CompactionBlockAmbiguousError CompactionBlockMisplacedError
        CompactionContentMismatchError CompactionIncompleteTurnError CompactionNothingToSummarizeError
        CompactionSignatureInvalidError CompactionTooManyToolReferencesError CompactionToolChangesMismatchError
        ContractSpendLimitReachedError EmailDomainNotAllowedError EnforcedSpendLimitReachedError
        ExternalKeyInWorkspacePolicyError ExternalKeyValidationFailedError ExternalKeyValidationTimedOutError
        FileExpiredError FileNotDownloadableError ImageDimensionsTooLargeError InviteAlreadyExistsError
        KeyProfileMismatchError LinkedOrganizationBillingUnavailableError LinkedOrganizationSpendLimitReachedError
        NotFoundError OrgAPIKeyLimitExceededError OrgMemberLimitExceededError OrganizationOnHoldError
        OrganizationTypeNotSupportedError ParentOrganizationRequiredError PaymentRequiredError PermissionDeniedError
        PreconditionFailedError RBACGroupGrantsOwnerAccessError RBACGroupOwnerAccessUnconfirmedError
        RBACRoleNotFoundError RequestBodyEncodingInvalidError RequestBodyEncodingUnsupportedError
        RequestHeaderFieldsTooLargeError SandboxEgressRestrictedError StorageProfileMismatchError
        StorageQuotaExceededError ThreadAlreadyContinuedError ThreadContinueInFlightError
        ThreadFingerprintMismatchError ThreadNotFoundError ThreadUnsupportedRequestError ToolNameConflictError
        ToolReferenceUnresolvedError UnprocessableEntityError UserProfileBillingNotAuthorizedError
        UserProfileNotBillableError UserProfileNotFoundError UserProfileRequiredError
        WorkspaceAPIKeyLimitExceededError WorkspaceHumanReviewDisabledError WorkspaceMemberLimitExceededError
        WorkspacePolicyViolationError
        """
    ),
}

# What the client raises by itself, or as the base of others.
OTHERS: dict[str, Remedy] = {
    "APIConnectionError": Remedy.RETRY,
    "APIError": Remedy.RETRY,  # with a request, and without a response
    "APIResponseValidationError": Remedy.GIVE_UP,  # of parsed responses; ours are read as they come
    "APIStatusError": Remedy.GIVE_UP,  # here: a status that no class is for
    "APITimeoutError": Remedy.RETRY,
    "APIWebhookValidationError": Remedy.RETRY,  # of webhooks; there are none here
    "AnthropicError": Remedy.GIVE_UP,
    "CredentialsError": Remedy.GIVE_UP,
    "IdentityTokenFileError": Remedy.GIVE_UP,
    "InternalServerError": Remedy.RETRY,
    "MissingDependencyError": Remedy.GIVE_UP,
    "MutuallyExclusiveAuthError": Remedy.GIVE_UP,
    "RetryableError": Remedy.GIVE_UP,  # of middleware; ours has none
    "StreamAlreadyConsumed": Remedy.GIVE_UP,
    "ToolsetClosedError": Remedy.GIVE_UP,
    "ToolsetConfigError": Remedy.GIVE_UP,
    "ToolsetContractError": Remedy.GIVE_UP,
    "ToolsetUsageError": Remedy.GIVE_UP,
    "ToolsetsFixedError": Remedy.GIVE_UP,
    "WorkloadIdentityError": Remedy.GIVE_UP,  # here: without a status; see below
}


def with_all_below(kind: type[Exception]) -> Iterator[type[Exception]]:
    """The class, and all that were made of it so far."""
    yield kind
    for below in kind.__subclasses__():
        yield from with_all_below(below)


def test_every_error_class_of_the_sdk_is_in_one_of_the_tables() -> None:
    """What nothing imports here (its tools, other clouds) may be missing, but not unknown."""
    found = {kind.__name__ for kind in with_all_below(AnthropicError) if kind.__module__.split(".")[0] == "anthropic"}
    known = OTHERS.keys() | frozenset().union(*ANSWERS.values())
    assert found - known == set()
    aliases = {"RequestTooLargeError", "DeadlineExceededError"}
    answers = {kind.__name__ for kind in _error_classes.ERROR_CLASSES.values()}
    assert (set(_exceptions.__all__) - aliases) | answers <= found
    assert frozenset().union(*ANSWERS.values()) == answers


def test_no_class_has_two_meanings() -> None:
    assert sum(map(len, ANSWERS.values())) == len(frozenset().union(*ANSWERS.values()))


async def test_every_answer_that_the_sdk_has_a_class_for_is_that_class_and_means_what_the_table_says() -> None:
    """The real client at a real server: it takes a class by status and error code."""
    script: list[Step] = []
    async with MessagesServer(script) as server:
        provider = Provider(server.url)
        wrong = []
        for (status, code), kind in _error_classes.ERROR_CLASSES.items():
            script.append(HttpError(status, details={"error_code": code} if code else None))
            with pytest.raises(kind) as raised:
                await provider.send(ASKED, lambda _: None)
            remedy = classify(raised.value).remedy
            if type(raised.value) is not kind or kind.__name__ not in ANSWERS[remedy]:
                wrong.append((status, code, type(raised.value).__name__, str(remedy)))
        await provider.close()
    assert wrong == []
    assert server.received == len(_error_classes.ERROR_CLASSES), "B19: one request for each"


def made(kind: type[Exception]) -> Exception:
    """An error of the class, as the client would raise it."""
    if kind is _exceptions.APITimeoutError:
        return kind(REQUEST)
    if kind is _exceptions.APIConnectionError:
        return kind(request=REQUEST)
    if issubclass(kind, _exceptions.APIStatusError):
        status = 555 if kind is _exceptions.InternalServerError else 455
        return kind("x", response=httpx2.Response(status, request=REQUEST), body=None)
    if kind is _exceptions.APIResponseValidationError:
        return kind(httpx2.Response(200, request=REQUEST), None)
    if issubclass(kind, _exceptions.APIError):
        return kind("x", REQUEST, body=None)
    try:
        return kind("x")
    except TypeError:  # it writes its own text, from other arguments
        return kind.__new__(kind)


@pytest.mark.parametrize(
    "kind", [kind for kind in with_all_below(AnthropicError) if kind.__name__ in OTHERS], ids=lambda kind: kind.__name__
)
def test_every_error_of_the_client_itself_means_what_the_table_says(kind: type[Exception]) -> None:
    assert classify(made(kind)).remedy is OTHERS[kind.__name__]


@pytest.mark.parametrize(
    ("status", "cause", "remedy"),
    [
        (503, None, Remedy.RETRY),
        (401, None, Remedy.GIVE_UP),
        (None, httpx2.ConnectError("refused"), Remedy.RETRY),
        (None, None, Remedy.GIVE_UP),
    ],
)
def test_credentials_that_come_from_a_server_may_come_later(
    status: int | None, cause: Exception | None, remedy: Remedy
) -> None:
    error = WorkloadIdentityError("no token", status_code=status)
    error.__cause__ = cause
    assert classify(error).remedy is remedy


HTTP_ERRORS = [kind for kind in with_all_below(httpx2.RequestError) if kind.__module__.startswith("httpx2")]


@pytest.mark.parametrize("kind", HTTP_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_http_library_is_tried_again(kind: type[Exception]) -> None:
    """They come raw out of a stream in flight."""
    assert classify(kind("x")).remedy is Remedy.RETRY
