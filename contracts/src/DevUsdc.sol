// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

import {ArcSystemLog} from "./ArcSystemLog.sol";

/// @title DevUsdc
///
/// @notice A stand-in for USDC on Arc: the same interface, the same EIP-712 domain, the same traps, and a faucet.
///         For the sandbox and for tests; it is worth nothing.
///
/// @dev On Arc the token moves native coin by a precompile. The sandbox's EVM has none, so the token notes what it
///      moved, counts that into every balance, and the chain moves the coin after the block and clears the notes
///      (`sandbox/chain/one-balance.ts`). Where no chain does that, as in the Solidity tests, the notes are the balances.
///
///      Nothing is kept in storage by the constructor, so the code works at any address it is copied to with
///      `hardhat_setCode`: name and symbol are constants, and the blocklister is an immutable. Names of functions and
///      events that USDC has are USDC's names, also where ours would be others (`isBlacklisted`).
contract DevUsdc is ERC3009 {
    /// Where Arc's own log of every movement comes from. Empty on other chains: then there is one log, as elsewhere.
    ArcSystemLog public constant SYSTEM_LOG = ArcSystemLog(0xffffFFFfFFffffffffffffffFfFFFfffFFFfFFfE);

    /// One atomic USDC (6 decimals) in native coin (18 decimals).
    uint256 public constant NATIVE_PER_ATOMIC = 1e12;

    /// The most that one call of the faucet gives: a million USDC.
    uint256 public constant FAUCET_VALUE_MAX = 1e12;

    /// The one address that may block and unblock.
    address public immutable blacklister;

    mapping(address account => bool blacklisted) private _blacklisted;
    uint256 private _supply;

    event Blacklisted(address indexed account);
    event UnBlacklisted(address indexed account);

    error BlockedAddress(address account);
    error OnlyBlacklister(address caller, address blacklister);
    error FaucetValueTooLarge(uint256 value, uint256 valueMax);

    constructor(address blacklister_) ERC20("", "") EIP712("USDC", "2") {
        blacklister = blacklister_;
    }

    function name() public pure override returns (string memory) {
        return "USDC";
    }

    function symbol() public pure override returns (string memory) {
        return "USDC";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// The native balance, less what is below one atomic unit.
    function balanceOf(address account) public view override returns (uint256) {
        return uint256(int256(account.balance) + _moved(account)) / NATIVE_PER_ATOMIC;
    }

    /// What the faucet minted. The coin that the chain began with is not counted.
    function totalSupply() public view override returns (uint256) {
        return _supply;
    }

    function version() external pure returns (string memory) {
        return "2";
    }

    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// Gives test money to anyone who asks.
    function faucet(address to, uint256 value) external {
        if (value > FAUCET_VALUE_MAX) revert FaucetValueTooLarge(value, FAUCET_VALUE_MAX);
        _mint(to, value);
    }

    function isBlacklisted(address account) public view returns (bool) {
        return _blacklisted[account];
    }

    function blacklist(address account) external {
        if (msg.sender != blacklister) revert OnlyBlacklister(msg.sender, blacklister);
        _blacklisted[account] = true;
        emit Blacklisted(account);
    }

    function unBlacklist(address account) external {
        if (msg.sender != blacklister) revert OnlyBlacklister(msg.sender, blacklister);
        _blacklisted[account] = false;
        emit UnBlacklisted(account);
    }

    /// Anyone may submit this: a contract that credits what it receives must use `receiveWithAuthorization`, else the
    /// money can be moved past it.
    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) public {
        bytes32 typeHash = TRANSFER_WITH_AUTHORIZATION_TYPEHASH;
        bytes32 structHash = keccak256(abi.encode(typeHash, from, to, value, validAfter, validBefore, nonce));
        _requireSigned(from, structHash, signature);
        _transferWithAuthorization(from, to, value, validAfter, validBefore, nonce);
    }

    /// Only the payee may submit this.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) public {
        if (to != msg.sender) revert ERC20InvalidReceiver(to);
        bytes32 typeHash = RECEIVE_WITH_AUTHORIZATION_TYPEHASH;
        bytes32 structHash = keccak256(abi.encode(typeHash, from, to, value, validAfter, validBefore, nonce));
        _requireSigned(from, structHash, signature);
        _transferWithAuthorization(from, to, value, validAfter, validBefore, nonce);
    }

    function cancelAuthorization(address authorizer, bytes32 nonce, bytes memory signature) public {
        bytes32 structHash = keccak256(abi.encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce));
        _requireSigned(authorizer, structHash, signature);
        _cancelAuthorization(authorizer, nonce);
    }

    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) public override {
        transferWithAuthorization(from, to, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }

    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) public override {
        receiveWithAuthorization(from, to, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }

    function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) public override {
        cancelAuthorization(authorizer, nonce, abi.encodePacked(r, s, v));
    }

    /// An account with code is asked by ERC-1271, as USDC does since 2.2. An account whose key signs but which was
    /// delegated by EIP-7702 has code and is therefore refused: account addresses must never be delegated.
    function _requireSigned(address signer, bytes32 structHash, bytes memory signature) private view {
        bool signed = SignatureChecker.isValidSignatureNow(signer, _hashTypedDataV4(structHash), signature);
        if (!signed) revert ERC3009InvalidSignature();
    }

    /// USDC reads both ends as seconds, always. OpenZeppelin reads them as block numbers when bit 47 is set in both.
    function _checkValidity(uint256 validAfter, uint256 validBefore) internal view override {
        bool valid = validAfter < block.timestamp && block.timestamp < validBefore;
        if (!valid) revert ERC3009InvalidAuthorizationTime(validAfter, validBefore);
    }

    /// Replaces OpenZeppelin's balances in storage.
    function _update(address from, address to, uint256 value) internal override {
        // 1. A blocked address neither sends nor receives.
        if (_blacklisted[from]) revert BlockedAddress(from);
        if (_blacklisted[to]) revert BlockedAddress(to);

        // 2. Move the money.
        if (from == address(0)) {
            _supply += value;
        } else {
            uint256 balance = balanceOf(from);
            if (balance < value) revert ERC20InsufficientBalance(from, balance, value);
        }
        if (from != to && value != 0) {
            uint256 native = value * NATIVE_PER_ATOMIC;
            if (from != address(0)) _note(from, -int256(native));
            if (to != address(0)) _note(to, int256(native));

            // 3. Arc logs the native movement first, and logs neither a self-transfer nor nothing.
            if (address(SYSTEM_LOG).code.length != 0) SYSTEM_LOG.logTransfer(from, to, native);
        }
        emit Transfer(from, to, value);
    }

    /// What the token moved to (or from) the account since the chain last moved its coin. In 18 decimals. The chain
    /// clears a note to 1: a slot that is never empty again costs the gas of an ordinary token's balance.
    function _moved(address account) private view returns (int256 moved) {
        assembly ("memory-safe") {
            moved := sload(shl(96, account))
        }
        if (moved != 0) --moved;
    }

    function _note(address account, int256 native) private {
        int256 moved = _moved(account) + native + 1;
        assembly ("memory-safe") {
            sstore(shl(96, account), moved)
        }
    }
}
