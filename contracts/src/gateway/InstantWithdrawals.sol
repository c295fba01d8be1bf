// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {Balance, Balances} from "./Balances.sol";
import {BurnIntent, BurnIntents, TransferSpec} from "./BurnIntent.sol";
import {IUsdc} from "./IUsdc.sol";
import {Roles} from "./Roles.sol";

/// The fields of a burn intent that must say what this gateway expects.
enum IntentField {
    Version,
    SourceDomain,
    DestinationDomain,
    SourceContract,
    DestinationContract,
    SourceToken,
    DestinationToken,
    SourceSigner,
    DestinationCaller,
    HookData
}

/// @title InstantWithdrawals
///
/// @notice The exit without a wait. It takes two: the depositor signs a burn intent that names the recipient, and a
///         relayer, who knows that no served request is still unsettled, submits it. Neither can do it alone.
abstract contract InstantWithdrawals is Roles, Balances, ReentrancyGuardTransient {
    using SafeERC20 for IUsdc;

    uint32 public constant TRANSFER_SPEC_VERSION = 1;

    mapping(bytes32 transferSpecHash => bool used) public isTransferSpecUsed;

    event InstantWithdrawal(
        address indexed token,
        address indexed depositor,
        bytes32 indexed transferSpecHash,
        address recipient,
        uint256 value,
        uint256 fromAvailable,
        uint256 fromWithdrawing
    );

    error IntentMismatch(IntentField field, bytes32 signed, bytes32 expected);
    error IntentExpired(uint256 maxBlockHeight, uint256 currentBlock);
    error IntentValueZero();
    error IntentRecipientInvalid(bytes32 recipient);
    error IntentSignatureInvalid(address signer, address depositor);
    error IntentUsed(bytes32 transferSpecHash);
    error IntentExceedsBalance(uint256 value, uint256 balance);

    /// The number under which burn intents name this chain. It is the chain id, not Circle's number: Circle gives Arc
    /// and its test network the same one, and a burn intent has no other word that could tell the two apart.
    function domain() public view returns (uint32) {
        return SafeCast.toUint32(block.chainid);
    }

    /// Pays `intent.spec.value` out of the signer's balance to the recipient that the signer named.
    function instantWithdraw(BurnIntent calldata intent, bytes calldata signature)
        external
        nonReentrant
        whenNotPaused
        onlyRelayer
    {
        TransferSpec calldata spec = intent.spec;

        // 1. The intent must be meant for this gateway, and for now.
        _requireMeantForHere(spec);
        if (intent.maxBlockHeight < block.number) revert IntentExpired(intent.maxBlockHeight, block.number);
        if (spec.value == 0) revert IntentValueZero();
        address recipient = _recipient(spec);

        // 2. The depositor must have signed it.
        bytes32 transferSpecHash = BurnIntents.hash(spec);
        address signer = ECDSA.recover(BurnIntents.digest(intent, transferSpecHash), signature);
        if (_toBytes32(signer) != spec.sourceDepositor) {
            revert IntentSignatureInvalid(signer, address(uint160(uint256(spec.sourceDepositor))));
        }

        // 3. It pays once.
        if (isTransferSpecUsed[transferSpecHash]) revert IntentUsed(transferSpecHash);
        isTransferSpecUsed[transferSpecHash] = true;

        // 4. Debit the depositor.
        Balance memory balance = _load(signer);
        if (spec.value > _total(balance)) revert IntentExceedsBalance(spec.value, _total(balance));
        (uint256 fromAvailable, uint256 fromWithdrawing) = _debit(balance, spec.value);
        _store(signer, balance);

        // 5. Say so.
        emit InstantWithdrawal(
            address(token), signer, transferSpecHash, recipient, spec.value, fromAvailable, fromWithdrawing
        );

        // 6. Pay.
        token.safeTransfer(recipient, spec.value);
    }

    function _requireMeantForHere(TransferSpec calldata spec) private view {
        bytes32 here = _toBytes32(address(this));
        bytes32 usdc = _toBytes32(address(token));
        bytes32 chain = bytes32(uint256(domain()));

        _requireField(IntentField.Version, bytes32(uint256(spec.version)), bytes32(uint256(TRANSFER_SPEC_VERSION)));
        _requireField(IntentField.SourceDomain, bytes32(uint256(spec.sourceDomain)), chain);
        _requireField(IntentField.DestinationDomain, bytes32(uint256(spec.destinationDomain)), chain);
        _requireField(IntentField.SourceContract, spec.sourceContract, here);
        _requireField(IntentField.DestinationContract, spec.destinationContract, here);
        _requireField(IntentField.SourceToken, spec.sourceToken, usdc);
        _requireField(IntentField.DestinationToken, spec.destinationToken, usdc);
        // There are no delegates here: a depositor signs for its own balance.
        _requireField(IntentField.SourceSigner, spec.sourceSigner, spec.sourceDepositor);
        if (spec.destinationCaller != 0) {
            _requireField(IntentField.DestinationCaller, spec.destinationCaller, _toBytes32(msg.sender));
        }
        // A hook that is signed and then not run would be a promise broken in silence.
        _requireField(IntentField.HookData, keccak256(spec.hookData), keccak256(""));
    }

    function _requireField(IntentField field, bytes32 signed, bytes32 expected) private pure {
        if (signed != expected) revert IntentMismatch(field, signed, expected);
    }

    /// The gateway itself is refused: tokens it sends to itself belong to nobody.
    function _recipient(TransferSpec calldata spec) private view returns (address recipient) {
        recipient = address(uint160(uint256(spec.destinationRecipient)));
        bool padded = _toBytes32(recipient) == spec.destinationRecipient;
        if (!padded || recipient == address(0) || recipient == address(this)) {
            revert IntentRecipientInvalid(spec.destinationRecipient);
        }
    }

    function _toBytes32(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
